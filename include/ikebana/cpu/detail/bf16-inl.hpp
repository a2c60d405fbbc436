/// The bits of x rounded to bfloat16, in the upper half of each float.
IKEBANA_CPU_INLINE vec<float> rounded_to_bf16(vec<float> x) {
  using words = vec<std::uint32_t>;
  const words bits = as<std::uint32_t>(x);
  const words rounded = (bits + ((bits >> 16) & words::broadcast(1)) + words::broadcast(0x7FFF)) &
                        words::broadcast(0xFFFF0000u);
  const words quiet = (bits & words::broadcast(0x80000000u)) | words::broadcast(0x7FC00000u);
  return select(x == x, as<float>(rounded), as<float>(quiet));
}
