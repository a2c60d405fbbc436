# ikebana::ikebana       the library: needs Boost.Hana and threads
# ikebana::safetensors   with <ikebana/io/safetensors.hpp>: needs nlohmann/json as well, and is
#                        there only where that is found
# ikebana::kernels       the library with its kernels compiled apart, which units that link it do without: CMakeLists.txt
#                        builds it, and installs it with -DIKEBANA_KERNELS=ON

function(ikebana_add_targets include_dir)
  if(TARGET ikebana::ikebana)
    return()
  endif()

  find_package(Threads REQUIRED)
  find_path(IKEBANA_HANA_INCLUDE boost/hana.hpp DOC "Directory that holds boost/hana.hpp" REQUIRED)
  find_path(IKEBANA_JSON_INCLUDE nlohmann/json.hpp DOC "Directory that holds nlohmann/json.hpp")

  add_library(ikebana::ikebana INTERFACE IMPORTED GLOBAL)
  target_compile_features(ikebana::ikebana INTERFACE cxx_std_20)
  target_include_directories(ikebana::ikebana INTERFACE ${include_dir} ${IKEBANA_HANA_INCLUDE})
  target_link_libraries(ikebana::ikebana INTERFACE Threads::Threads)

  if(IKEBANA_JSON_INCLUDE)
    add_library(ikebana::safetensors INTERFACE IMPORTED GLOBAL)
    target_include_directories(ikebana::safetensors INTERFACE ${IKEBANA_JSON_INCLUDE})
    target_link_libraries(ikebana::safetensors INTERFACE ikebana::ikebana)
  endif()
endfunction()
