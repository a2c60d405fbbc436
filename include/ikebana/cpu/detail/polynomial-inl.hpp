// Polynomials on vec<T>.

#if IKEBANA_CPU_WIDTH == 64
/// Read from memory each time that it is needed: a copy of a register that is to be overwritten
/// would take the ports that do the arithmetic.
IKEBANA_CPU_INLINE vec<float> reread(const float (&x)[16]) {
  vec<float> y;
  asm volatile("vmovups %1, %0" : "=v"(y.v) : "m"(x));
  return y;
}
IKEBANA_CPU_INLINE vec<float> reread(const float& x) {
  vec<float> y;
  asm volatile("vbroadcastss %1, %0" : "=v"(y.v) : "m"(x));
  return y;
}
IKEBANA_CPU_INLINE vec<double> reread(const double& x) {
  vec<double> y;
  asm volatile("vbroadcastsd %1, %0" : "=v"(y.v) : "m"(x));
  return y;
}

#endif

/// c[0] + c[1] x + ... by Horner's rule.
template <class T, std::size_t N, std::size_t... I>
IKEBANA_CPU_INLINE vec<T> polynomial(const T (&c)[N], vec<T> x, std::index_sequence<I...>) {
#if IKEBANA_CPU_WIDTH == 64
  vec<T> y = reread(c[N - 1]);
#else
  vec<T> y = vec<T>::broadcast(c[N - 1]);
#endif
  ((y = fma(y, x, vec<T>::broadcast(c[N - 2 - I]))), ...);
  return y;
}
template <class T, std::size_t N>
IKEBANA_CPU_INLINE vec<T> polynomial(const T (&c)[N], vec<T> x) {
  return polynomial(c, x, std::make_index_sequence<N - 1>{});
}

#if IKEBANA_CPU_WIDTH == 64
// Piecewise polynomials of float for sets with 32 lanes in two registers: 32 intervals of equal
// width from 0 on, each with its own center, where the function is a float but for a hundredth of
// its last place. Fits by weighted least squares to the relative error, the coefficients rounded
// one after the other. Their first row are the centers.
struct tables {
  static constexpr float tanh_width = 0.2734375f;
  /// tanh(a).
  alignas(64) static constexpr float tanh[7][32] = {
      {0x0.0p+0f,      0x1.43e150p-3f, 0x1.de4a2ap-2f, 0x1.a55c94p-1f, 0x1.1760fep+0f,
       0x1.5f51a2p+0f, 0x1.a2457cp+0f, 0x1.e9feecp+0f, 0x1.17b644p+1f, 0x1.3a05b2p+1f,
       0x1.5d0132p+1f, 0x1.817b2cp+1f, 0x1.a5049ep+1f, 0x1.c64842p+1f, 0x1.e986eap+1f,
       0x1.06eb62p+2f, 0x1.179224p+2f, 0x1.29582ep+2f, 0x1.3afaf6p+2f, 0x1.4cd5c4p+2f,
       0x1.5e2312p+2f, 0x1.6fcdb2p+2f, 0x1.814b18p+2f, 0x1.9220d4p+2f, 0x1.a37e76p+2f,
       0x1.b5482cp+2f, 0x1.c7863ap+2f, 0x1.d87082p+2f, 0x1.e97b7cp+2f, 0x1.fc0624p+2f,
       0x1.063d68p+3f, 0x1.0f8230p+3f},
      {0x0.0p+0f,      0x1.4134f2p-3f, 0x1.be4c02p-2f, 0x1.5a765ap-1f, 0x1.983facp-1f,
       0x1.c229aep-1f, 0x1.da6cc6p-1f, 0x1.ea3378p-1f, 0x1.f3369ap-1f, 0x1.f87b00p-1f,
       0x1.fba222p-1f, 0x1.fd869cp-1f, 0x1.fe941cp-1f, 0x1.ff277cp-1f, 0x1.ff8320p-1f,
       0x1.ffb92ep-1f, 0x1.ffd5e8p-1f, 0x1.ffe7d8p-1f, 0x1.fff214p-1f, 0x1.fff808p-1f,
       0x1.fffb5cp-1f, 0x1.fffd54p-1f, 0x1.fffe74p-1f, 0x1.ffff16p-1f, 0x1.ffff78p-1f,
       0x1.ffffb2p-1f, 0x1.ffffd4p-1f, 0x1.ffffe6p-1f, 0x1.fffff0p-1f, 0x1.fffff8p-1f,
       0x1.fffffap-1f, 0x1.fffffep-1f},
      {0x1.000000p+0f,  0x1.f367e0p-1f,  0x1.9ebe66p-1f,  0x1.158df0p-1f,  0x1.74f4fcp-2f,
       0x1.d0d2e0p-3f,  0x1.21920ap-3f,  0x1.555bb8p-4f,  0x1.9410c0p-5f,  0x1.ddb74cp-6f,
       0x1.164668p-6f,  0x1.3bee1ep-7f,  0x1.6b62b2p-8f,  0x1.b0ac6ep-9f,  0x1.f34318p-10f,
       0x1.1b3468p-10f, 0x1.50b226p-11f, 0x1.8276dep-12f, 0x1.bd79eep-13f, 0x1.fdfb9cp-14f,
       0x1.28fec4p-14f, 0x1.55ff0cp-15f, 0x1.8bfe60p-16f, 0x1.d3fef4p-17f, 0x1.10000ep-17f,
       0x1.38046ep-18f, 0x1.61f120p-19f, 0x1.9fff86p-20f, 0x1.023da4p-20f, 0x1.26d952p-21f,
       0x1.8b1556p-22f, 0x1.f2601ap-23f},
      {0x0.0p+0f,        -0x1.394594p-3f,  -0x1.6987acp-2f,  -0x1.77a26ap-2f,  -0x1.296258p-2f,
       -0x1.98b00cp-3f,  -0x1.0c5200p-3f,  -0x1.46d31ep-4f,  -0x1.89f92ap-5f,  -0x1.d6b2d0p-6f,
       -0x1.13e688p-6f,  -0x1.3a66b4p-7f,  -0x1.6a5fe4p-8f,  -0x1.aff496p-9f,  -0x1.f2c93cp-10f,
       -0x1.1b0beap-10f, -0x1.509534p-11f, -0x1.82607ep-12f, -0x1.bd6b1cp-13f, -0x1.fd9cf2p-14f,
       -0x1.2911aap-14f, -0x1.55f006p-15f, -0x1.8b2becp-16f, -0x1.d37d08p-17f, -0x1.0f0188p-17f,
       -0x1.3b9696p-18f, -0x1.0cc5d0p-18f, -0x1.9fa6ccp-20f, 0x1.157e80p-17f,  -0x1.f012a8p-18f,
       0x1.6910fep-17f,  -0x1.6fb8fap-17f},
      {-0x1.55533ap-2f,  -0x1.3533c6p-2f,  -0x1.dbc876p-4f, 0x1.1492aap-4f,   0x1.c33284p-4f,
       0x1.98cce4p-4f,   0x1.303350p-4f,   0x1.8e40f0p-5f,  0x1.f2e518p-6f,   0x1.308f3cp-6f,
       0x1.69992ap-7f,   0x1.9f21b8p-8f,   0x1.e07586p-9f,  0x1.1f079ep-9f,   0x1.4be4d6p-10f,
       0x1.78fd96p-11f,  0x1.c08048p-12f,  0x1.017f18p-12f, 0x1.28e442p-13f,  0x1.541de8p-14f,
       0x1.8be756p-15f,  0x1.c802a4p-16f,  0x1.0866b0p-16f, 0x1.37abaep-17f,  0x1.674adep-18f,
       0x1.a2c778p-19f,  -0x1.6ae1e2p-21f, 0x1.153c7ep-20f, -0x1.02be90p-16f, -0x1.8c0166p-17f,
       -0x1.42239ep-16f, -0x1.39d8e0p-16f},
      {0x0.0p+0f,        0x1.b8e258p-4f,   0x1.5dbac2p-3f,   0x1.3a7fe8p-4f,   0x1.3606e8p-7f,
       -0x1.571d94p-6f,  -0x1.9a6716p-6f,  -0x1.46b378p-6f,  -0x1.c02998p-7f,  -0x1.1ef148p-7f,
       -0x1.5e07e2p-8f,  -0x1.986428p-9f,  -0x1.dc9cf2p-10f, -0x1.1e1fd4p-10f, -0x1.4b7686p-11f,
       -0x1.7a2728p-12f, -0x1.c204f4p-13f, -0x1.039b72p-13f, -0x1.2a9ad6p-14f, -0x1.77fdecp-15f,
       -0x1.7b7f4ep-16f, -0x1.d3cd0ap-17f, -0x1.5d8d7ep-17f, -0x1.6d7adap-18f, -0x1.1f19e0p-18f,
       0x1.418820p-20f,  0x1.30e09ap-14f,  -0x1.39a122p-21f, -0x1.014122p-11f, 0x1.81ad7cp-12f,
       -0x1.36131ep-11f, 0x1.2e16aep-11f},
      {0x1.0e3714p-3f,   0x1.0db966p-4f,  -0x1.36290cp-5f, -0x1.fa72dap-5f, -0x1.24238cp-5f,
       -0x1.4a7b80p-7f,  0x1.cb3d86p-10f, 0x1.33bff8p-8f,  0x1.16ae48p-8f,  0x1.8c92f4p-9f,
       0x1.0023d2p-9f,   0x1.3c712cp-10f, 0x1.7a11f4p-11f, 0x1.bece56p-12f, 0x1.05811ep-12f,
       0x1.2ca2b6p-13f,  0x1.6532bcp-14f, 0x1.9e359ap-15f, 0x1.dac23ep-16f, 0x1.8a0624p-17f,
       0x1.4ef09cp-17f,  0x1.5b78f6p-18f, 0x1.84abc2p-21f, 0x1.786400p-19f, 0x1.372694p-18f,
       -0x1.72cd5ap-20f, 0x1.6aaa74p-13f, 0x1.f5db5ap-23f, 0x1.2a500cp-10f, 0x1.c45cc8p-11f,
       0x1.693f08p-10f,  0x1.5e3520p-10f},
  };
  static constexpr float logistic_width = 0.5546875f;
  /// 1 / (1 + exp(a)).
  alignas(64) static constexpr float logistic[8][32] = {
      {0x0.0p+0f,      0x1.686f76p-1f, 0x1.438a1cp+0f, 0x1.cc31f8p+0f, 0x1.2fc9f8p+1f,
       0x1.744ad6p+1f, 0x1.bcfd68p+1f, 0x1.0178ccp+2f, 0x1.252778p+2f, 0x1.47e224p+2f,
       0x1.6bc620p+2f, 0x1.8f1b6ap+2f, 0x1.b3d268p+2f, 0x1.d76b02p+2f, 0x1.f95cd6p+2f,
       0x1.0e830ep+3f, 0x1.1fee10p+3f, 0x1.32486cp+3f, 0x1.437b52p+3f, 0x1.55e6b8p+3f,
       0x1.6732f6p+3f, 0x1.79b074p+3f, 0x1.8b4a5ap+3f, 0x1.9d17a2p+3f, 0x1.aebc26p+3f,
       0x1.c00d86p+3f, 0x1.d1a6c8p+3f, 0x1.e3e3dap+3f, 0x1.f572b8p+3f, 0x1.03d406p+4f,
       0x1.0c8826p+4f, 0x1.15476ep+4f},
      {0x1.000000p-1f,  0x1.52dfb0p-2f,  0x1.c33502p-3f,  0x1.2319b8p-3f,  0x1.5d1786p-4f,
       0x1.a7cca0p-5f,  0x1.eb562ep-6f,  0x1.201aa4p-6f,  0x1.4c7218p-7f,  0x1.84171cp-8f,
       0x1.bc23e2p-9f,  0x1.001506p-9f,  0x1.20d3d8p-10f, 0x1.4b609ep-11f, 0x1.860d56p-12f,
       0x1.beeb8ap-13f, 0x1.035828p-13f, 0x1.245052p-14f, 0x1.5590e0p-15f, 0x1.802c8ap-16f,
       0x1.bf8228p-17f, 0x1.f63732p-18f, 0x1.21be5ap-18f, 0x1.4c3ba6p-19f, 0x1.7eda7cp-20f,
       0x1.bdafd6p-21f, 0x1.012658p-21f, 0x1.22dcd8p-22f, 0x1.5010fep-23f, 0x1.7c7c1ap-24f,
       0x1.b9b1b0p-25f, 0x1.ff5b08p-26f},
      {-0x1.000000p-2f,  -0x1.c575a8p-3f,  -0x1.5fcc88p-3f,  -0x1.f37290p-4f,  -0x1.3f56f4p-4f,
       -0x1.91dff2p-5f,  -0x1.dc9a20p-6f,  -0x1.1b09b4p-6f,  -0x1.4912a8p-7f,  -0x1.81cac6p-8f,
       -0x1.baa29cp-9f,  -0x1.ff29e2p-10f, -0x1.208260p-10f, -0x1.4b2b00p-11f, -0x1.85e830p-12f,
       -0x1.bed328p-13f, -0x1.034ff2p-13f, -0x1.244b1ap-14f, -0x1.558d50p-15f, -0x1.802a4ap-16f,
       -0x1.bf80a0p-17f, -0x1.f6363cp-18f, -0x1.21be08p-18f, -0x1.4c3b70p-19f, -0x1.7eda58p-20f,
       -0x1.bdafbep-21f, -0x1.012650p-21f, -0x1.22dcd2p-22f, -0x1.5010fap-23f, -0x1.7c7c18p-24f,
       -0x1.b9b1aep-25f, -0x1.ff5b06p-26f},
      {0x1.7140f6p-26f, 0x1.32a9c8p-5f,  0x1.8991e6p-5f,  0x1.657740p-5f,  0x1.08e818p-5f,
       0x1.684b4cp-6f,  0x1.c00440p-7f,  0x1.111572p-7f,  0x1.42654cp-8f,  0x1.7d3912p-9f,
       0x1.b7a2acp-10f, 0x1.fd2a8ep-11f, 0x1.1fdfa0p-11f, 0x1.4abfd2p-12f, 0x1.859df0p-13f,
       0x1.bea266p-14f, 0x1.033f88p-14f, 0x1.2440aep-15f, 0x1.558630p-16f, 0x1.8025c8p-17f,
       0x1.bf7d92p-18f, 0x1.f6344cp-19f, 0x1.21bd62p-19f, 0x1.4c3b00p-20f, 0x1.7eda0ep-21f,
       0x1.bdaf8ep-22f, 0x1.012640p-22f, 0x1.22dcc8p-23f, 0x1.5010f2p-24f, 0x1.7c7c12p-25f,
       0x1.b9b1acp-26f, 0x1.ff5b06p-27f},
      {0x1.55520cp-6f,   0x1.8d3a9ep-7f,   0x1.cbf240p-11f,  -0x1.657c60p-8f,  -0x1.c5366ep-8f,
       -0x1.7a1a5cp-8f,  -0x1.0645cep-8f,  -0x1.524460p-9f,  -0x1.9c52ccp-10f, -0x1.f03898p-11f,
       -0x1.211c60p-11f, -0x1.50ca3ap-12f, -0x1.7e257cp-13f, -0x1.b7e212p-14f, -0x1.035d4cp-14f,
       -0x1.298136p-15f, -0x1.597eecp-16f, -0x1.85922ep-17f, -0x1.c74c78p-18f, -0x1.001304p-18f,
       -0x1.2a50fep-19f, -0x1.4ecb28p-20f, -0x1.8250c6p-21f, -0x1.baf924p-22f, -0x1.fe7882p-23f,
       -0x1.291f9ap-23f, -0x1.56ddc8p-24f, -0x1.83d352p-25f, -0x1.c01868p-26f, -0x1.fb505ep-27f,
       -0x1.26775ap-27f, -0x1.54e8dep-28f},
      {0x1.5b8e80p-17f, -0x1.52d17ap-8f, -0x1.1658e8p-8f, -0x1.b9fa9ap-10f, 0x1.6cb264p-13f,
       0x1.8b66dap-11f, 0x1.84e940p-11f, 0x1.209f30p-11f, 0x1.7a1468p-12f,  0x1.d86174p-13f,
       0x1.1935c0p-13f, 0x1.4b7dd6p-14f, 0x1.7ab1eap-15f, 0x1.b5b7d6p-16f,  0x1.028944p-16f,
       0x1.28fb38p-17f, 0x1.591d36p-18f, 0x1.8542e8p-19f, 0x1.c71ad8p-20f,  0x1.000a50p-20f,
       0x1.2a3e38p-21f, 0x1.4ecd86p-22f, 0x1.82507ep-23f, 0x1.bafebcp-24f,  0x1.fe7764p-25f,
       0x1.291b98p-25f, 0x1.56d8c8p-26f, 0x1.83bfd4p-27f, 0x1.c00c5ep-28f,  0x1.fb5836p-29f,
       0x1.266ddep-29f, 0x1.54dacap-30f},
      {-0x1.196caap-9f,  -0x1.d93ad0p-12f, 0x1.de5ce8p-11f,  0x1.d65682p-11f,  0x1.9c4a28p-12f,
       0x1.28b3d4p-14f,  -0x1.e39124p-15f, -0x1.3afad8p-14f, -0x1.f44e3cp-15f, -0x1.5456a4p-15f,
       -0x1.a81428p-16f, -0x1.ffc1cap-17f, -0x1.27bcc4p-17f, -0x1.5840b0p-18f, -0x1.97ceb8p-19f,
       -0x1.d711cep-20f, -0x1.1282d6p-20f, -0x1.34b8fap-21f, -0x1.692480p-22f, -0x1.97b02ap-23f,
       -0x1.d99ef4p-24f, -0x1.09ea00p-24f, -0x1.32da68p-25f, -0x1.5f6f28p-26f, -0x1.956e6ap-27f,
       -0x1.d9a7f8p-28f, -0x1.114496p-28f, -0x1.33a77ap-29f, -0x1.63c41ep-30f, -0x1.93319ap-31f,
       -0x1.d48936p-32f, -0x1.0ed560p-32f},
      {0x1.86d0b6p-13f,  0x1.20dbf6p-11f,  0x1.33fb58p-12f,  -0x1.3792f6p-14f, -0x1.3205b0p-13f,
       -0x1.5b123ap-14f, -0x1.a82f00p-16f, -0x1.a94e40p-21f, 0x1.6d14acp-18f,  0x1.74b6acp-18f,
       0x1.0ec5e8p-18f,  0x1.6297dap-19f,  0x1.b8ae56p-20f,  0x1.012558p-20f,  0x1.3f4184p-21f,
       0x1.63921cp-22f,  0x1.9b2f70p-23f,  0x1.e57016p-24f,  0x1.19665ap-24f,  0x1.31d826p-25f,
       0x1.71c970p-26f,  0x1.98be5ep-27f,  0x1.d8e7f8p-28f,  0x1.116b3cp-28f,  0x1.394fbep-29f,
       0x1.626b4ap-30f,  0x1.9928a4p-31f,  0x1.e671f8p-32f,  0x1.15a844p-32f,  0x1.35105ep-33f,
       0x1.66d2f2p-34f,  0x1.a5c550p-35f},
  };
  static constexpr float normal_width = 0.171875f;
  /// The normal distribution at -a.
  alignas(64) static constexpr float normal[8][32] = {
      {0x0.0p+0f,      0x1.66792cp-3f, 0x1.5c1d3ap-2f, 0x1.05e616p-1f, 0x1.5ffd24p-1f,
       0x1.b9f320p-1f, 0x1.08dc2ap+0f, 0x1.34ffecp+0f, 0x1.5f4920p+0f, 0x1.8d383cp+0f,
       0x1.b7a8e4p+0f, 0x1.e36d98p+0f, 0x1.080a90p+1f, 0x1.1dd6c2p+1f, 0x1.33ab66p+1f,
       0x1.4a9500p+1f, 0x1.5fd62ap+1f, 0x1.768b36p+1f, 0x1.8c612ap+1f, 0x1.a28e2ep+1f,
       0x1.b7bc92p+1f, 0x1.cd904ep+1f, 0x1.e4718ep+1f, 0x1.f9d516p+1f, 0x1.07efc8p+2f,
       0x1.132daap+2f, 0x1.1e535ap+2f, 0x1.295120p+2f, 0x1.33e854p+2f, 0x1.3f0ecap+2f,
       0x1.4a0322p+2f, 0x1.554f04p+2f},
      {0x1.000000p-1f,  0x1.b8dbbep-2f,  0x1.77c076p-2f,  0x1.37cd0cp-2f,  0x1.f7958ep-3f,
       0x1.8d5988p-3f,  0x1.341260p-3f,  0x1.d1c1e0p-4f,  0x1.5c2806p-4f,  0x1.ee9608p-5f,
       0x1.5fdb1ap-5f,  0x1.e31c58p-6f,  0x1.408c88p-6f,  0x1.a277dap-7f,  0x1.09efd8p-7f,
       0x1.41409cp-8f,  0x1.881684p-9f,  0x1.c1dbc6p-10f, 0x1.007a90p-10f, 0x1.19f716p-11f,
       0x1.36298cp-12f, 0x1.4619acp-13f, 0x1.42b826p-14f, 0x1.455008p-15f, 0x1.3855d0p-16f,
       0x1.1efd28p-17f, 0x1.01cae8p-18f, 0x1.c72b88p-20f, 0x1.93045ep-21f, 0x1.4c2d76p-22f,
       0x1.0e3f52p-23f, 0x1.9f070ep-25f},
      {-0x1.988454p-2f,  -0x1.924e7ep-2f,  -0x1.819476p-2f,  -0x1.666b9ap-2f,  -0x1.4289aap-2f,
       -0x1.1975ccp-2f,  -0x1.de6974p-3f,  -0x1.8a57aap-3f,  -0x1.3eaf2ep-3f,  -0x1.ea4f0cp-4f,
       -0x1.75ed4ep-4f,  -0x1.12bce2p-4f,  -0x1.854d74p-5f,  -0x1.0e0a44p-5f,  -0x1.6bb18ep-6f,
       -0x1.d18716p-7f,  -0x1.2b0692p-7f,  -0x1.69851ep-8f,  -0x1.b09192p-9f,  -0x1.f26348p-10f,
       -0x1.1e2b04p-10f, -0x1.39fd74p-11f, -0x1.4465c4p-12f, -0x1.53ed3ap-13f, -0x1.533176p-14f,
       -0x1.43ba06p-15f, -0x1.2d9078p-16f, -0x1.13a0aap-17f, -0x1.f82afcp-19f, -0x1.ad8710p-20f,
       -0x1.68a472p-21f, -0x1.1dce30p-22f},
      {0x1.f1e138p-20f, 0x1.19ac40p-5f,  0x1.0628ecp-4f,  0x1.6eaddap-4f,  0x1.bb79b0p-4f,
       0x1.e5e744p-4f,  0x1.eef82ap-4f,  0x1.dbfbb0p-4f,  0x1.b54d36p-4f,  0x1.7c6426p-4f,
       0x1.411852p-4f,  0x1.0367fcp-4f,  0x1.9187f0p-5f,  0x1.2d83f8p-5f,  0x1.b5196ep-6f,
       0x1.2c938cp-6f,  0x1.9af82ep-7f,  0x1.08768ap-7f,  0x1.4ee2acp-8f,  0x1.976d74p-9f,
       0x1.eb8e90p-10f, 0x1.1b0f34p-10f, 0x1.32f026p-11f, 0x1.4fd4f4p-12f, 0x1.5db584p-13f,
       0x1.5bfa94p-14f, 0x1.514996p-15f, 0x1.401cc0p-16f, 0x1.2f3288p-17f, 0x1.0baa10p-18f,
       0x1.d0e85cp-20f, 0x1.7d0bdep-21f},
      {0x1.0ff0c4p-4f,   0x1.03fd92p-4f,   0x1.c6b5f4p-5f,   0x1.60d4ccp-5f,   0x1.c5b432p-6f,
       0x1.7ee11cp-7f,   -0x1.66f610p-9f,  -0x1.e0855ap-7f,  -0x1.7728fap-6f,  -0x1.cc18d2p-6f,
       -0x1.e5faa6p-6f,  -0x1.d60384p-6f,  -0x1.a66c62p-6f,  -0x1.66d99ep-6f,  -0x1.2198acp-6f,
       -0x1.b7ef2ap-7f,  -0x1.46b430p-7f,  -0x1.c7a5f2p-8f,  -0x1.35a1c6p-8f,  -0x1.928e56p-9f,
       -0x1.019a6ap-9f,  -0x1.3a11b6p-10f, -0x1.68311ep-11f, -0x1.9e0de6p-12f, -0x1.c476d0p-13f,
       -0x1.d7bfe2p-14f, -0x1.dddb78p-15f, -0x1.d8b95ep-16f, -0x1.d138d8p-17f, -0x1.aae344p-18f,
       -0x1.8082bep-19f, -0x1.46c452p-20f},
      {0x1.2c8eb8p-9f,   -0x1.178322p-7f, -0x1.f84d58p-7f, -0x1.4eaaf4p-6f, -0x1.75b3c0p-6f,
       -0x1.6d597ep-6f,  -0x1.3e3bc0p-6f, -0x1.e99d08p-7f, -0x1.45aedcp-7f, -0x1.2c8cd0p-8f,
       -0x1.5c14e2p-12f, 0x1.88438ap-9f,  0x1.4ffcd2p-8f,  0x1.8f312ep-8f,  0x1.94ab1ap-8f,
       0x1.6fb364p-8f,   0x1.37f83ep-8f,  0x1.ea4ccep-9f,  0x1.6fce9cp-9f,  0x1.052e7ep-9f,
       0x1.688cb2p-10f,  0x1.d7ea62p-11f, 0x1.21a63cp-11f, 0x1.6119dcp-12f, 0x1.98346cp-13f,
       0x1.c115b6p-14f,  0x1.de3e5cp-15f, 0x1.efa4e8p-16f, 0x1.fd0e36p-17f, 0x1.e76956p-18f,
       0x1.c8f6e2p-19f,  0x1.93e446p-20f},
      {-0x1.182316p-5f,  -0x1.30ccdep-7f,  -0x1.edc9dcp-8f,  -0x1.0cadb8p-8f,  -0x1.c826cap-10f,
       0x1.640264p-10f,  0x1.0d449ap-8f,   0x1.82f27cp-8f,   0x1.8a94a4p-8f,   0x1.6f6732p-8f,
       0x1.268c6cp-8f,   0x1.b6323ap-9f,   0x1.caad64p-10f,  0x1.e1d26ap-12f,  -0x1.583438p-12f,
       -0x1.d69254p-11f, -0x1.2a90f6p-10f, -0x1.2bfe78p-10f, -0x1.0eb27ep-10f, -0x1.bae28ep-11f,
       -0x1.55df7cp-11f, -0x1.ec14dcp-12f, -0x1.4a9278p-12f, -0x1.b27282p-13f, -0x1.0da7dep-13f,
       -0x1.3c537cp-14f, -0x1.652782p-15f, -0x1.877926p-16f, -0x1.a58324p-17f, -0x1.a81beep-18f,
       -0x1.9facb2p-19f, -0x1.7ffb56p-20f},
      {0x1.86b0dap-4f,   0x1.8dc35ep-9f,   0x1.b5e60ep-9f,   0x1.418ad2p-9f,   0x1.f9cbd6p-9f,
       0x1.4509cep-9f,   0x1.f25694p-11f,  0x1.bd7a0ap-11f,  0x1.a5b752p-13f,  -0x1.928a36p-11f,
       -0x1.09ecd6p-10f, -0x1.0eb40ap-9f,  -0x1.481f46p-10f, -0x1.6552ecp-11f, -0x1.4b60ccp-11f,
       -0x1.74d490p-12f, -0x1.cf32d2p-16f, 0x1.5bc6dep-14f,  0x1.38e360p-13f,  0x1.93eeacp-13f,
       0x1.9d140ap-13f,  0x1.4e88c4p-13f,  0x1.06ac60p-13f,  0x1.7c6e52p-14f,  0x1.06924ep-14f,
       0x1.4fb3a2p-15f,  0x1.9733ecp-16f,  0x1.de8094p-17f,  0x1.09e5a4p-17f,  0x1.211600p-18f,
       0x1.2527aep-19f,  0x1.214358p-20f},
  };
  static constexpr float gelu_slope_width = 0.203125f;
  /// The derivative of gelu at -a; the last interval is 0.
  alignas(64) static constexpr float gelu_slope[8][32] = {
      {0x0.0p+0f,      0x1.a8e438p-3f, 0x1.a29d5ep-2f, 0x1.393ea8p-1f, 0x1.a013e4p-1f,
       0x1.03cfaep+0f, 0x1.395658p+0f, 0x1.6b01cap+0f, 0x1.a12fe2p+0f, 0x1.d43a92p+0f,
       0x1.0403eep+1f, 0x1.1e112ep+1f, 0x1.373ad2p+1f, 0x1.522e3cp+1f, 0x1.6bd488p+1f,
       0x1.861f30p+1f, 0x1.a044eap+1f, 0x1.ba94f2p+1f, 0x1.d383a2p+1f, 0x1.ee7830p+1f,
       0x1.044f18p+2f, 0x1.1141e2p+2f, 0x1.1e0f40p+2f, 0x1.2b4daep+2f, 0x1.37d2b0p+2f,
       0x1.449c82p+2f, 0x1.51df3ep+2f, 0x1.5ecf9cp+2f, 0x1.6c0edcp+2f, 0x1.78d544p+2f,
       0x1.85a59cp+2f, 0x1.92eab6p+2f},
      {0x1.000000p-1f,   0x1.58e6c4p-2f,   0x1.87d664p-3f,   0x1.163072p-4f,   -0x1.96a6f2p-6f,
       -0x1.63afe8p-4f,  -0x1.ed1f16p-4f,  -0x1.07fd58p-3f,  -0x1.ee7cbap-4f,  -0x1.a719eep-4f,
       -0x1.4f3e60p-4f,  -0x1.f0fa12p-5f,  -0x1.5fcf7cp-5f,  -0x1.cb1e56p-6f,  -0x1.225dccp-6f,
       -0x1.593fd6p-7f,  -0x1.87f77ep-8f,  -0x1.a68acap-9f,  -0x1.c25926p-10f, -0x1.b30d54p-11f,
       -0x1.9a18e0p-12f, -0x1.7471e2p-13f, -0x1.46de24p-14f, -0x1.0a9c7cp-15f, -0x1.b6282ep-17f,
       -0x1.52d876p-18f, -0x1.e4266ep-20f, -0x1.53a524p-21f, -0x1.bcc7d4p-23f, -0x1.2291cap-24f,
       -0x1.6b06fep-26f, 0x0.0p+0f},
      {-0x1.988454p-1f, -0x1.8736e8p-1f, -0x1.585e84p-1f, -0x1.136258p-1f, -0x1.8959b2p-2f,
       -0x1.d988f6p-3f, -0x1.83c34cp-4f, 0x1.99f378p-10f, 0x1.1bfdb2p-4f,  0x1.9cbb3cp-4f,
       0x1.b9723ap-4f,  0x1.92bf4ep-4f,  0x1.4c91e6p-4f,  0x1.f05bd2p-5f,  0x1.5dbd7cp-5f,
       0x1.ca036cp-6f,  0x1.1b29bap-6f,  0x1.49daa4p-7f,  0x1.77fee8p-8f,  0x1.8465d4p-9f,
       0x1.84dfa8p-10f, 0x1.757218p-11f, 0x1.593406p-12f, 0x1.2832e8p-13f, 0x1.fd62bep-15f,
       0x1.9bb33cp-16f, 0x1.333b2cp-17f, 0x1.c0f0c0p-19f, 0x1.31e62ap-20f, 0x1.9eb00ap-22f,
       0x1.0c6d8ep-23f, 0x0.0p+0f},
      {0x1.a91b04p-19f,  0x1.4839dcp-3f,   0x1.26650ep-2f,   0x1.77c160p-2f,   0x1.8e7338p-2f,
       0x1.6fde9ep-2f,   0x1.27bd4ap-2f,   0x1.a5a8cep-3f,   0x1.da652ep-4f,   0x1.6f5ddap-5f,
       -0x1.aaa43ep-8f,  -0x1.2afc76p-5f,  -0x1.8b3c36p-5f,  -0x1.886276p-5f,  -0x1.4d8876p-5f,
       -0x1.fa7718p-6f,  -0x1.610fc6p-6f,  -0x1.c7b362p-7f,  -0x1.1ac712p-7f,  -0x1.3d0c5ep-8f,
       -0x1.550a58p-9f,  -0x1.5d7f9cp-10f, -0x1.56d336p-11f, -0x1.377256p-12f, -0x1.19b05ep-13f,
       -0x1.de08e4p-15f, -0x1.7623d4p-16f, -0x1.1dab0cp-17f, -0x1.965c36p-19f, -0x1.1e868ep-20f,
       -0x1.81429ap-22f, 0x0.0p+0f},
      {0x1.103288p-2f,  0x1.ed2e86p-3f,  0x1.65ff4ap-3f,  0x1.574ffcp-4f,  -0x1.24629ap-7f,
       -0x1.5db2c8p-4f, -0x1.11246ap-3f, -0x1.2c8f3ap-3f, -0x1.100816p-3f, -0x1.a49e70p-4f,
       -0x1.0fde06p-4f, -0x1.0dac00p-5f, -0x1.139b42p-7f, 0x1.00a4bep-7f,  0x1.e7e336p-7f,
       0x1.089728p-6f,  0x1.cc4a4ep-7f,  0x1.5d40eep-7f,  0x1.e9808ap-8f,  0x1.322610p-8f,
       0x1.68b380p-9f,  0x1.9037aap-10f, 0x1.a54560p-11f, 0x1.98f7e8p-12f, 0x1.87da7ep-13f,
       0x1.5f3024p-14f, 0x1.21cbaap-15f, 0x1.d07d1ep-17f, 0x1.5a29d4p-18f, 0x1.fd6ef8p-20f,
       0x1.64b664p-21f, 0x0.0p+0f},
      {0x1.75c7ccp-9f,   -0x1.e4af2ep-5f,  -0x1.9e7ccap-4f,  -0x1.e461a6p-4f,  -0x1.bc4accp-4f,
       -0x1.3f3382p-4f,  -0x1.28b1fap-5f,  0x1.538ef2p-11f,  0x1.e94fd2p-6f,   0x1.63b126p-5f,
       0x1.6c23b6p-5f,   0x1.2c6970p-5f,   0x1.a020bap-6f,   0x1.b96ad4p-7f,   0x1.311100p-8f,
       -0x1.0d48a6p-10f, -0x1.e3dce8p-9f,  -0x1.18e3dcp-8f,  -0x1.f0b826p-9f,  -0x1.724d4cp-9f,
       -0x1.f11d9ep-10f, -0x1.32989cp-10f, -0x1.60e286p-11f, -0x1.736b44p-12f, -0x1.7d0a56p-13f,
       -0x1.6bd46ap-14f, -0x1.3ed4bap-15f, -0x1.0dc178p-16f, -0x1.a75e92p-18f, -0x1.46721ep-19f,
       -0x1.dde2f2p-21f, 0x0.0p+0f},
      {-0x1.5ea882p-4f, -0x1.a48ba0p-5f,  -0x1.f2ec96p-6f, -0x1.b4db46p-9f, 0x1.5fe264p-6f,
       0x1.2c9246p-5f,  0x1.4b6122p-5f,   0x1.1675e6p-5f,  0x1.51d096p-6f,  0x1.c5b970p-8f,
       -0x1.0a15d6p-8f, -0x1.50f668p-7f,  -0x1.88cbc8p-7f, -0x1.4fc5c8p-7f, -0x1.da48fcp-8f,
       -0x1.035c24p-8f, -0x1.7b064ap-10f, 0x1.a32cdap-14f, 0x1.a1f930p-11f, 0x1.f72aa8p-11f,
       0x1.b15e74p-11f, 0x1.3c9f0ep-11f,  0x1.9eb212p-12f, 0x1.e652c8p-13f, 0x1.101c82p-13f,
       0x1.18afc2p-14f, 0x1.084c10p-15f,  0x1.dc73acp-17f, 0x1.8ce848p-18f, 0x1.429df0p-19f,
       0x1.f0057ap-21f, 0x0.0p+0f},
      {0x1.67b568p-4f,   0x1.afb19ep-7f,   0x1.555222p-6f,   0x1.6334d6p-6f,   0x1.1867c8p-6f,
       0x1.0d0cb4p-7f,   -0x1.18f5fap-9f,  -0x1.2215a8p-7f,  -0x1.76e9acp-7f,  -0x1.54aae0p-7f,
       -0x1.bcef58p-8f,  -0x1.852cc8p-9f,  0x1.bc696cp-12f,  0x1.21914cp-9f,   0x1.6b4112p-9f,
       0x1.3e7e66p-9f,   0x1.b69066p-10f,  0x1.c5af30p-11f,  0x1.4a90b0p-12f,  -0x1.1d3538p-16f,
       -0x1.5e3390p-13f, -0x1.8e9682p-13f, -0x1.4720d4p-13f, -0x1.c7e640p-14f, -0x1.1b9bc0p-14f,
       -0x1.40ffc4p-15f, -0x1.4c119cp-16f, -0x1.4167e4p-17f, -0x1.217446p-18f, -0x1.ee933cp-20f,
       -0x1.8b64e0p-21f, 0x0.0p+0f},
  };
};

/// The polynomial of the interval of a + low, a >= 0 below 31.5 widths.
template <std::size_t N>
IKEBANA_CPU_INLINE vec<float> piecewise(const float (&rows)[N][32], float width, vec<float> a,
                                        const vec<float>* low = nullptr) {
  // The last bits of a sum with a number this big are the interval.
  const vec<float> shifted =
      fma(a, vec<float>::broadcast(1 / width), vec<float>::broadcast(0x1.8p23f));
  const __m512i interval = __builtin_bit_cast(__m512i, shifted.v);
  const auto row = [&](std::size_t i) __attribute__((always_inline)) {
    return vec<float>{
        _mm512_permutex2var_ps(reread(reinterpret_cast<const float(&)[16]>(rows[i])).v, interval,
                               vec<float>::load(rows[i] + 16).v)};
  };
  vec<float> h = a - row(0);
  if (low != nullptr) h = h + *low;
  vec<float> y = row(N - 1);
  [&]<std::size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
    ((y = fma(y, h, row(N - 2 - I))), ...);
  }
  (std::make_index_sequence<N - 2>{});
  return y;
}

/// min(|a|, most), and `most` for what is not a number.
IKEBANA_CPU_INLINE vec<float> magnitude(vec<float> a, float most) {
  return {__builtin_ia32_rangeps512_mask(a.v, vec<float>::broadcast(most).v, 0b1010,
                                         vec<float>::zero().v, all16, 4)};
}
/// a, or `most` with its sign if that is nearer to 0 or a is not a number.
IKEBANA_CPU_INLINE vec<float> limited(vec<float> a, float most) {
  return {__builtin_ia32_rangeps512_mask(a.v, vec<float>::broadcast(most).v, 0b0010,
                                         vec<float>::zero().v, all16, 4)};
}
IKEBANA_CPU_INLINE vec<double> limited(vec<double> a, double most) {
  return {__builtin_ia32_rangepd512_mask(a.v, vec<double>::broadcast(most).v, 0b0010,
                                         vec<double>::zero().v, all8, 4)};
}

IKEBANA_CPU_INLINE __mmask16 is_at_least(vec<float> a, vec<float> b) {
  return _mm512_cmp_ps_mask(a.v, b.v, _CMP_GE_OQ);
}
/// Those below b, and those that are not a number.
IKEBANA_CPU_INLINE __mmask16 is_not_at_least(vec<float> a, float b) {
  return _mm512_cmp_ps_mask(a.v, vec<float>::broadcast(b).v, _CMP_NGE_UQ);
}

/// exp by a table of the powers of 2^(1/16): x = n log(2) + r with n of four binary places.
IKEBANA_CPU_INLINE vec<float> exp_by_table(vec<float> x) {
  alignas(64) static constexpr float powers[16] = {
      0x1.000000p+0f, 0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
      0x1.306fe0p+0f, 0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
      0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
      0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
  constexpr float big = 0x1.8p19f;
  vec<float> shifted =
      fma(x, vec<float>::broadcast(1.4426950408889634f), vec<float>::broadcast(big));
  keep_rounding(shifted);
  const vec<float> n = shifted - big;
  vec<float> r = fma(n, vec<float>::broadcast(-0x1.62ep-1f), x);
  r = fma(n, vec<float>::broadcast(-0x1.0bfbe8p-15f), r);
  // Beyond overflow and underflow any r will do.
  r = limited(r, 0.03f);
  const vec<float> power{_mm512_maskz_permutexvar_ps(all16, __builtin_bit_cast(__m512i, shifted.v),
                                                     vec<float>::load(powers).v)};
  const vec<float> e = fma(
      r * r, fma(r, vec<float>::broadcast(0.1666705923f), vec<float>::broadcast(0.5000162519f)), r);
  return scale_by_power(fma(power, e, power), n);
}
#endif
