// Piecewise polynomials of float: as many intervals as AVX2 has lanes, each with its own center,
// where the function is a float but for a hundredth of its last place. Fits by weighted least
// squares to the relative error, the coefficients rounded one after the other, and the center that
// leaves the least error after rounding. The first row are the centers.

#if IKEBANA_CPU_WIDTH >= 32
/// tanh(a).
struct tanh_pieces {
  static constexpr float most = 9.02f, scale = 0x1.a9b85ep-1f;
  static constexpr bool by_octaves = true, adds_argument = false;
  static constexpr int pairs = 2;
  alignas(64) static constexpr float rows[7][8] = {
      {0x1.4bc354p1f, 0x1.10eadcp2f, 0x1.9bfa82p2f, 0x1.03ae5cp3f, 0, 0x1.a39e96p-2f, 0x1.231544p0f,
       0x1.b1feaep0f},
      {0x1.fa4a7p-1f, 0x1.ffcc2ep-1f, 0x1.ffff54p-1f, 0x1.fffffap-1f, 0, 0x1.8d9bd8p-2f,
       0x1.a07812p-1f, 0x1.dea076p-1f},
      {0x1.6b5b6ap-6f, 0x1.9ea158p-11f, 0x1.54727ep-17f, 0x1.7f957p-22f, 0x1p0f, 0x1.b2ce6ap-1f,
       0x1.5a7982p-2f, 0x1.0248c8p-3f},
      {-0x1.674f9ap-6f, -0x1.9cceaep-11f, -0x1.539a4ep-17f, -0x1.7efc2p-22f, 0x1.c7a27cp-21f,
       -0x1.51a98p-2f, -0x1.19d49ep-2f, -0x1.e2e5c2p-4f},
      {0x1.d43eeep-7f, 0x1.1b6e88p-11f, 0x1.4b624p-17f, 0x1.039702p-22f, -0x1.55583ep-2f,
       -0x1.3d878cp-3f, 0x1.c7249p-4f, 0x1.173b88p-4f},
      {-0x1.be7648p-8f, -0x1.d27264p-13f, 0x1.386e5cp-18f, -0x1.066658p-23f, -0x1.0c7c14p-14f,
       0x1.5c772p-3f, 0x1.0d79b4p-9f, -0x1.907666p-6f},
      {-0x1.716c06p-11f, 0x1.6e7016p-16f, 0x1.226b44p-18f, -0x1.f66454p-27f, -0x1.d97a4cp-8f,
       -0x1.0c797cp-4f, 0x1.dc7838p-6f, 0x1.0176fcp-9f}};
};
/// erf(a); in the first interval without a.
struct erf_pieces {
  static constexpr float most = 3.93f, scale = 0x1.e88c94p0f;
  static constexpr bool by_octaves = true, adds_argument = true;
  static constexpr int pairs = 1;
  alignas(64) static constexpr float rows[7][8] = {
      {0x1.3963fep0f, 0x1.a7fc4ap0f, 0x1.71cd82p1f, 0x1.ca103ep1f, 0, 0x1.7afbeap-3f,
       0x1.80e12ap-2f, 0x1.6fbcd6p-1f},
      {0x1.d54bc4p-1f, 0x1.f62f5ep-1f, 0x1.fffa3ep-1f, 0x1.fffff2p-1f, 0, 0x1.a6ce5ep-3f,
       0x1.9ead7ep-2f, 0x1.61681cp-1f},
      {0x1.022c8ap-2f, 0x1.298c22p-4f, 0x1.1959a4p-12f, 0x1.88424ep-19f, 0x1.06eba8p-3f,
       0x1.172404p0f, 0x1.f59df6p-1f, 0x1.58e542p-1f},
      {-0x1.3c0b12p-2f, -0x1.ecc9a8p-4f, -0x1.98fac6p-11f, -0x1.8cfb8cp-17f, 0x1.ea42e2p-23f,
       -0x1.9d3dd6p-3f, -0x1.79131p-2f, -0x1.ef6f1ap-2f},
      {0x1.57b2f4p-3f, 0x1.bcde46p-4f, 0x1.46219cp-10f, 0x1.041bfap-15f, -0x1.8129c8p-2f,
       -0x1.5ab498p-2f, -0x1.dfdb3ep-3f, 0x1.d39b5ep-8f},
      {-0x1.f1bf62p-11f, -0x1.99ab6p-5f, -0x1.4dadcep-9f, -0x1.959414p-16f, 0x1.03b5bep-13f,
       0x1.93f114p-4f, 0x1.559344p-3f, 0x1.452482p-3f},
      {-0x1.ce781cp-5f, 0x1.36790ep-11f, -0x1.0b7666p-14f, 0x1.7b7246p-16f, 0x1.cd7782p-4f,
       0x1.817a12p-4f, 0x1.717a9cp-5f, -0x1.8d7a38p-5f}};
};
/// a / (1 + exp(a)).
struct silu_tail_pieces {
  static constexpr float most = 9.0f, square = -0x1.f7a8b4p-6f, step = 0x1.1be03ep0f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 1;
  alignas(64) static constexpr float rows[8][8] = {
      {0, 0x1.a84738p-1f, 0x1.0b2324p1f, 0x1.8c2ac2p1f, 0x1.14e35p2f, 0x1.5d044cp2f, 0x1.c9b4aep2f,
       0x1.0ea488p3f},
      {0, 0x1.01e622p-2f, 0x1.d7b9a4p-3f, 0x1.1289e6p-3f, 0x1.ce4412p-5f, 0x1.7cf038p-6f,
       0x1.6ef6a6p-8f, 0x1.d68e7cp-10f},
      {0x1p-1f, 0x1.0768aap-3f, -0x1.83446ap-4f, -0x1.5be42p-4f, -0x1.5d6362p-5f, -0x1.3575fp-6f,
       -0x1.3b5d4cp-8f, -0x1.9ed1cap-10f},
      {-0x1.000002p-2f, -0x1.6ade4cp-3f, -0x1.2c8bfep-6f, 0x1.18b39p-6f, 0x1.d2da04p-7f,
       0x1.d9efdp-8f, 0x1.078f04p-9f, 0x1.670196p-11f},
      {0x1.107a38p-20f, 0x1.944196p-5f, 0x1.8cdf88p-6f, 0x1.7734c4p-9f, -0x1.2d082p-9f,
       -0x1.b20812p-10f, -0x1.19d8f8p-11f, -0x1.94117cp-13f},
      {0x1.55250ep-6f, 0x1.4d8baep-8f, -0x1.032bccp-7f, -0x1.66755ep-9f, -0x1.217c0ep-14f,
       0x1.c98358p-13f, 0x1.a6e0f8p-14f, 0x1.491e78p-15f},
      {0x1.0c0b22p-14f, -0x1.5d3168p-8f, 0x1.9a62aep-11f, 0x1.b614f8p-11f, 0x1.352bfcp-13f,
       -0x1.5786b4p-19f, -0x1.b8251ap-17f, -0x1.95d016p-18f},
      {-0x1.2a7346p-9f, 0x1.7a736ep-12f, 0x1.5b7264p-12f, -0x1.0d6ec2p-13f, -0x1.7e6e66p-15f,
       -0x1.da6c66p-18f, 0x1.6268dp-20f, 0x1.7966d8p-21f}};
};
/// a P(X > a) of a standard normal X.
struct gelu_tail_pieces {
  static constexpr float most = 5.55f, square = 0x1.d0cbd4p-4f, step = 0x1.70845ap-1f;
  static constexpr float coarse = 5;  // From here on, up to 2.2 units off.
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 1;
  alignas(64) static constexpr float rows[9][8] = {
      {0, 0x1.96420ep0f, 0x1.1cb176p1f, 0x1.80826p1f, 0x1.df1b6cp1f, 0x1.1b2314p2f, 0x1.3d46dap2f,
       0x1.608a96p2f},
      {0, 0x1.6db6a8p-4f, 0x1.dc3b2cp-6f, 0x1.064d4ep-8f, 0x1.64ce12p-12f, 0x1.678b9p-16f,
       0x1.db3e52p-20f, 0x1.ac357cp-24f},
      {0x1p-1f, -0x1.f9b42ep-4f, -0x1.f9a824p-5f, -0x1.836856p-7f, -0x1.4b4cecp-10f,
       -0x1.8bf99p-14f, -0x1.25adcep-17f, -0x1.264aaap-21f},
      {-0x1.988456p-2f, 0x1.e0f3fep-6f, 0x1.95e8bcp-5f, 0x1.f7f57ep-7f, 0x1.1ce0a6p-9f,
       0x1.9d5f56p-13f, 0x1.5bff5ap-16f, 0x1.870f1ep-20f},
      {0x1.704e8cp-20f, 0x1.6b8d4ep-5f, -0x1.82cb28p-7f, -0x1.68effcp-7f, -0x1.283f04p-9f,
       -0x1.0e1a6cp-12f, -0x1.060f36p-15f, -0x1.4db04cp-19f},
      {0x1.10463cp-4f, -0x1.19fdcep-5f, -0x1.1aa922p-7f, 0x1.0a3b0cp-8f, 0x1.9418ecp-10f,
       0x1.ea221cp-13f, 0x1.17fdacp-15f, 0x1.99bef8p-19f},
      {0x1.b2843ap-14f, 0x1.3b1716p-8f, 0x1.e7f324p-8f, -0x1.495938p-16f, -0x1.640ee8p-11f,
       -0x1.430e3cp-13f, -0x1.bfaed2p-16f, -0x1.7bccc8p-19f},
      {-0x1.51a666p-7f, 0x1.b2c75cp-9f, -0x1.bb8b26p-10f, -0x1.927be6p-11f, 0x1.3fb0d4p-13f,
       0x1.2b0f26p-14f, 0x1.15065cp-16f, 0x1.2d0d5cp-19f},
      {0x1.227498p-11f, -0x1.49749ep-9f, -0x1.f4736ep-12f, 0x1.896dc6p-12f, 0x1.8d7096p-17f,
       -0x1.d56ad4p-16f, -0x1.e06ce6p-18f, -0x1.ca6b28p-21f}};
};
/// a / (1 + exp(sqrt(8 / pi) (a + 0.044715 a^3))).
struct gelu_tanh_tail_pieces {
  static constexpr float most = 5.06f, square = 0x1.17965cp-3f, step = 0x1.943414p-1f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 0;
  alignas(64) static constexpr float rows[10][8] = {
      {0, 0x1.281cbep0f, 0x1.0fd182p1f, 0x1.5c70ccp1f, 0x1.aa904ap1f, 0x1.ff7daap1f, 0x1.1d60c2p2f,
       0x1.3ce3bp2f},
      {0, 0x1.25729ap-3f, 0x1.238056p-5f, 0x1.11be0ap-7f, 0x1.31479ap-10f, 0x1.2c45dcp-14f,
       0x1.b2d3acp-18f, 0x1.54b5b8p-22f},
      {0x1p-1f, -0x1.cc6878p-4f, -0x1.2a650ap-4f, -0x1.7fea64p-6f, -0x1.183866p-8f,
       -0x1.659958p-12f, -0x1.31e2d2p-15f, -0x1.1ade88p-19f},
      {-0x1.988454p-2f, -0x1.16e148p-4f, 0x1.b08a2ep-5f, 0x1.bf8fcep-6f, 0x1.c85d1ap-8f,
       0x1.88944ep-11f, 0x1.93bc7ap-14f, 0x1.beb104p-18f},
      {0x1.37cbb4p-21f, 0x1.aa823p-4f, -0x1.b5218cp-8f, -0x1.fd1ddp-7f, -0x1.a4f17ep-8f,
       -0x1.040f32p-10f, -0x1.49a8cep-13f, -0x1.bc46bep-17f},
      {0x1.11a7e2p-4f, -0x1.f0dc4ep-6f, -0x1.a6d7a2p-7f, 0x1.4a3958p-9f, 0x1.c204d2p-9f,
       0x1.c61d3p-11f, 0x1.70ca94p-13f, 0x1.365828p-16f},
      {0x1.07b55ep-14f, -0x1.369f6ap-7f, 0x1.0427bap-7f, 0x1.1fb7f8p-9f, -0x1.a3ae46p-11f,
       -0x1.077d8ep-11f, -0x1.25fc86p-13f, -0x1.40f2f8p-16f},
      {-0x1.55b8dcp-7f, 0x1.bf95aep-8f, -0x1.15fc44p-10f, -0x1.81ad22p-10f, -0x1.bd1742p-13f,
       0x1.6a382ap-13f, 0x1.4cd0bep-14f, 0x1.f64a06p-17f},
      {0x1.bdcfcep-12f, -0x1.2423p-16f, -0x1.442d2ap-11f, 0x1.0d05aap-12f, 0x1.c438c6p-13f,
       -0x1.8abde2p-16f, -0x1.fcc524p-16f, -0x1.1fe93ap-17f},
      {0x1.d4f572p-11f, -0x1.d35142p-11f, 0x1.4c2e4cp-12f, 0x1.5df49p-14f, -0x1.dfd7fap-15f,
       -0x1.178468p-15f, 0x1.394b52p-19f, 0x1.3ac234p-18f}};
};
/// The derivative of gelu at -a; the last interval is 0.
struct gelu_slope_pieces {
  static constexpr float most = 6.2315f, square = -0x1.495a1p-4f, step = 0x1.8f2782p0f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 1;
  alignas(64) static constexpr float rows[8][8] = {
      {0x1.e8c1f4p-4f, 0x1.3ce17ep-1f, 0x1.96f81cp0f, 0x1.15cf94p1f, 0x1.a9d4cep1f, 0x1.fcbdf4p1f,
       0x1.5fb84p2f, 0},
      {0x1.9ef7dcp-2f, 0x1.069e9cp-4f, -0x1.f9081ap-4f, -0x1.130cbp-4f, -0x1.3adbd2p-8f,
       -0x1.222e36p-11f, -0x1.3b0c16p-21f, 0},
      {-0x1.92bb2cp-1f, -0x1.10b58ep-1f, 0x1.e6fb38p-5f, 0x1.a42f4ep-4f, 0x1.d4536cp-7f,
       0x1.0bdd5p-9f, 0x1.9f8144p-19f, 0},
      {0x1.81d3dp-4f, 0x1.798c02p-2f, 0x1.0e53aap-3f, -0x1.de2b8cp-6f, -0x1.2f9882p-6f,
       -0x1.c72864p-9f, -0x1.09c0d4p-17f, 0},
      {0x1.07afcap-2f, 0x1.498066p-4f, -0x1.19117cp-3f, -0x1.5e91p-5f, 0x1.a5d064p-7f,
       0x1.ced9b6p-9f, 0x1.bef41ep-17f, 0},
      {-0x1.1fdfcp-5f, -0x1.e4b39cp-4f, 0x1.a27f4p-6f, 0x1.460692p-5f, -0x1.0cd464p-8f,
       -0x1.2dced2p-9f, -0x1.ffebe4p-17f, 0},
      {-0x1.d2ed2ap-5f, -0x1.f51efcp-10f, 0x1.7b1964p-6f, -0x1.2385aap-7f, -0x1.6e714ap-11f,
       0x1.d4c82p-11f, 0x1.761126p-17f, 0},
      {0x1.fe7812p-8f, 0x1.67766ap-6f, -0x1.ab7704p-7f, -0x1.207668p-8f, 0x1.9573a6p-10f,
       -0x1.a170dp-14f, -0x1.3e6e2ap-17f, 0}};
};
/// The derivative of gelu_tanh at -a; the last interval is 0.
struct gelu_tanh_slope_pieces {
  static constexpr float most = 5.562f, square = -0x1.10e7b4p-3f, step = 0x1.ebe29p0f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 1;
  alignas(64) static constexpr float rows[8][8] = {
      {0x1.dc5edp-4f, 0x1.f89d82p-2f, 0x1.525f3ap0f, 0x1.c6abfp0f, 0x1.3c012ep1f, 0x1.e7f69p1f,
       0x1.4d5afep2f, 0},
      {0x1.a16836p-2f, 0x1.18c094p-3f, -0x1.03fc7ep-3f, -0x1.bf4526p-4f, -0x1.4ac93p-5f,
       -0x1.84bd4cp-11f, -0x1.9db78cp-22f, 0},
      {-0x1.92fe16p-1f, -0x1.3d91f4p-1f, -0x1.65a04cp-5f, 0x1.806042p-4f, 0x1.44c7cap-4f,
       0x1.8ab296p-9f, 0x1.668b5p-19f, 0},
      {0x1.7a0b46p-4f, 0x1.4f86fp-2f, 0x1.f8986p-3f, 0x1.063ca4p-4f, -0x1.8d65a8p-5f,
       -0x1.65f45ap-8f, -0x1.278abep-17f, 0},
      {0x1.094786p-2f, 0x1.1a3096p-3f, -0x1.2211f4p-3f, -0x1.c0b8bep-4f, -0x1.d89b66p-8f,
       0x1.73c298p-8f, 0x1.21b538p-16f, 0},
      {-0x1.1f2136p-5f, -0x1.cff614p-4f, -0x1.e348fep-7f, 0x1.40a4e6p-5f, 0x1.81569ep-6f,
       -0x1.ca0296p-9f, -0x1.a40d9p-16f, 0},
      {-0x1.de66ccp-5f, -0x1.2f4adep-6f, 0x1.2e4c28p-5f, 0x1.2a07ap-7f, -0x1.5888e4p-7f,
       0x1.042d24p-10f, 0x1.5fd67ep-15f, 0},
      {0x1.04782ap-7f, 0x1.7d725cp-6f, -0x1.0577bep-7f, -0x1.4675b6p-7f, 0x1.c0752ap-14f,
       0x1.c173cap-15f, 0x1.c07048p-18f, 0}};
};
#endif
