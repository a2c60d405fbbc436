#pragma once

#include <dnnl.hpp>
#include <initializer_list>
#include <string>
#include <unordered_map>

namespace bench {

/// The only engine and stream.
struct onednn_place {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};
inline onednn_place& onednn() {
  static onednn_place place;
  return place;
}

inline std::string onednn_version() {
  const dnnl_version_t* v = dnnl_version();
  return std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch);
}

/// A view of existing memory.
inline dnnl::memory onednn_view(const dnnl::memory::desc& d, const void* data) {
  return {d, onednn().engine, const_cast<void*>(data)};
}

}  // namespace bench
