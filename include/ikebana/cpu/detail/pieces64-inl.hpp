// Piecewise polynomials of float for sets with 16 lanes in a register: as many intervals, each with
// its own center, where the function is a float but for a hundredth of its last place. Fits by
// weighted least squares to the relative error, the coefficients rounded one after the other, and
// the center that leaves the least error after rounding. The first row are the centers.

#if IKEBANA_CPU_WIDTH == 64
/// tanh(a).
struct tanh_pieces {
  static constexpr float most = 9.02f, scale = 0x1.a9b85ep-1f;
  static constexpr bool by_octaves = true, adds_argument = false;
  static constexpr int pairs = 0;
  alignas(64) static constexpr float rows[7][16] = {
      {0x1.038068p1f, 0x1.66faccp1f, 0x1.9e88eap1f, 0x1.fb68bep1f, 0x1.3f6716p2f, 0x1.8cd88p2f,
       0x1.cc4bcp2f, 0x1.0a2b12p3f, 0, 0x1.b44104p-3f, 0x1.7395a8p-2f, 0x1.192c34p-1f,
       0x1.8ae71cp-1f, 0x1.14616cp0f, 0x1.61f4f2p0f, 0x1.9f714cp0f},
      {0x1.ee8bc8p-1f, 0x1.fc42ep-1f, 0x1.fe6d6p-1f, 0x1.ffa18ep-1f, 0x1.fff3ep-1f, 0x1.fffeecp-1f,
       0x1.ffffdap-1f, 0x1.fffffcp-1f, 0, 0x1.adc5fp-3f, 0x1.64171cp-2f, 0x1.ffe452p-2f,
       0x1.4b9ceap-1f, 0x1.960b4ep-1f, 0x1.c35976p-1f, 0x1.d99dep-1f},
      {0x1.1280b8p-4f, 0x1.dcd288p-7f, 0x1.920022p-8f, 0x1.79a702p-10f, 0x1.844ec8p-13f,
       0x1.14384p-16f, 0x1.2ffcb2p-19f, 0x1.ffd624p-23f, 0x1p0f, 0x1.e973f8p-1f, 0x1.c215f6p-1f,
       0x1.800dd8p-1f, 0x1.29386ep-1f, 0x1.7bf814p-2f, 0x1.c87742p-3f, 0x1.278e78p-3f},
      {-0x1.0925acp-4f, -0x1.d95cfcp-7f, -0x1.90c11ep-8f, -0x1.795862p-10f, -0x1.847b7ep-13f,
       -0x1.1473a4p-16f, -0x1.2f36cp-19f, -0x1.ff3ee8p-23f, 0x1.a00ebap-21f, -0x1.9ad89p-3f,
       -0x1.39077cp-2f, -0x1.7ff90cp-2f, -0x1.81023cp-2f, -0x1.2d56acp-2f, -0x1.92655ap-3f,
       -0x1.11666cp-3f},
      {0x1.49561ep-5f, 0x1.36569ep-7f, 0x1.09f70ep-8f, 0x1.f57054p-11f, 0x1.f86ac4p-14f,
       0x1.66ef58p-17f, 0x1.958e42p-20f, 0x1.5879fap-23f, -0x1.55616cp-2f, -0x1.1b2e36p-2f,
       -0x1.7e597p-3f, -0x1.007edap-4f, 0x1.99a7ap-5f, 0x1.c18b84p-4f, 0x1.95503ap-4f,
       0x1.34b7dp-4f},
      {-0x1.1a7b9cp-6f, -0x1.2d39aap-8f, -0x1.086cd2p-9f, -0x1.fa6778p-12f, -0x1.005674p-14f,
       -0x1.6a44e4p-18f, -0x1.b10064p-21f, -0x1.669ba2p-24f, 0x1.ab1668p-11f, 0x1.fdf3d6p-4f,
       0x1.54e8dep-3f, 0x1.3fb8a2p-3f, 0x1.7ce3d4p-4f, 0x1.78bf4p-7f, -0x1.60477cp-6f,
       -0x1.9c1f68p-6f},
      {0x1.2693acp-8f, 0x1.0e3a76p-9f, 0x1.6c373ap-11f, 0x1.c41cc4p-13f, 0x1.39d6dp-15f,
       0x1.c51feep-19f, 0x1.4a472ep-22f, 0x1.dcf13cp-26f, 0x1.0738b6p-3f, 0x1.564c4p-4f,
       0x1.2c14cap-6f, -0x1.1e0fbep-5f, -0x1.02b58cp-4f, -0x1.4b5p-5f, -0x1.6cb1e6p-7f,
       0x1.0a865cp-9f}};
};
/// erf(a); in the first interval without a.
struct erf_pieces {
  static constexpr float most = 3.93f, scale = 0x1.e88c94p0f;
  static constexpr bool by_octaves = true, adds_argument = true;
  static constexpr int pairs = 0;
  alignas(64) static constexpr float rows[7][16] = {
      {0x1.d91188p-1f, 0x1.3495dcp0f, 0x1.8125cep0f, 0x1.c033fap0f, 0x1.15e89p1f, 0x1.6694cep1f,
       0x1.b2df6ep1f, 0x1.df39d8p1f, 0, 0x1.a3c1a4p-4f, 0x1.62055p-3f, 0x1.cade16p-3f,
       0x1.498a54p-2f, 0x1.d0a828p-2f, 0x1.31dfb2p-1f, 0x1.6afab2p-1f},
      {0x1.9e0b18p-1f, 0x1.d2d114p-1f, 0x1.eeeacp-1f, 0x1.f93282p-1f, 0x1.fee7e2p-1f, 0x1.fff64p-1f,
       0x1.ffffccp-1f, 0x1.fffffcp-1f, 0, 0x1.d7fdd4p-4f, 0x1.8b86b4p-3f, 0x1.fd3dbcp-3f,
       0x1.676616p-2f, 0x1.ea7104p-2f, 0x1.3420fp-1f, 0x1.5e2e1p-1f},
      {0x1.ec08ccp-2f, 0x1.0e385p-2f, 0x1.e09ef4p-4f, 0x1.af2236p-5f, 0x1.4ba6cap-7f,
       0x1.cd5c24p-12f, 0x1.7c32f6p-17f, 0x1.f29ecp-21f, 0x1.06eba8p-3f, 0x1.1dd8e6p0f,
       0x1.185c72p0f, 0x1.12b8bep0f, 0x1.04720cp0f, 0x1.d63896p-1f, 0x1.94521ap-1f, 0x1.5d802ap-1f},
      {-0x1.c69edap-2f, -0x1.45ba3ep-2f, -0x1.69894p-3f, -0x1.7968cap-4f, -0x1.680292p-6f,
       -0x1.44464p-10f, -0x1.cbfcd4p-16f, -0x1.d2561ap-19f, 0x1.2f669ap-22f, -0x1.d4b244p-4f,
       -0x1.83b5e2p-3f, -0x1.ec6cdcp-3f, -0x1.4f435p-2f, -0x1.aabda8p-2f, -0x1.e31716p-2f,
       -0x1.ef8d76p-2f},
      {0x1.d00d3p-4f, 0x1.577344p-3f, 0x1.1a92d2p-3f, 0x1.70c488p-4f, 0x1.d158eap-6f,
       0x1.2864eep-9f, 0x1.545514p-13f, 0x1.009484p-17f, -0x1.812bf6p-2f, -0x1.751c7ap-2f,
       -0x1.5f58bp-2f, -0x1.497ddcp-2f, -0x1.13467cp-2f, -0x1.70cb32p-3f, -0x1.3493f2p-4f,
       0x1.38855cp-10f},
      {0x1.8760eap-4f, 0x1.59630cp-8f, -0x1.757f5ap-5f, -0x1.8aad8ep-5f, -0x1.8338fap-6f,
       -0x1.d3d40ap-10f, 0x1.54ea4p-13f, -0x1.dc1c72p-17f, 0x1.a51f9ap-12f, 0x1.d1e526p-5f,
       0x1.82b7ccp-4f, 0x1.dbff62p-4f, 0x1.37e584p-3f, 0x1.6fa6d4p-3f, 0x1.6fc72cp-3f,
       0x1.493f46p-3f},
      {-0x1.188a02p-4f, -0x1.c70c36p-5f, -0x1.66505ap-6f, 0x1.e56b1cp-9f, 0x1.98f26p-7f,
       0x1.1ebf0cp-8f, 0x1.267b36p-11f, 0x1.19fc28p-15f, 0x1.c1b5fap-4f, 0x1.9f984cp-4f,
       0x1.32bfd2p-4f, 0x1.1e4bd2p-4f, 0x1.9b219cp-5f, 0x1.6ae98ep-6f, -0x1.38db46p-6f,
       -0x1.8a5022p-5f}};
};
/// 1 / (1 + exp(a)).
struct logistic_pieces {
  static constexpr float most = 9.0f, square = 0.0f, step = 0x1.b89abcp0f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 0;
  alignas(64) static constexpr float rows[7][16] = {
      {0x1.22d4dep-3f, 0x1.03150cp-1f, 0x1.3feb78p0f, 0x1.d619b4p0f, 0x1.1fd554p1f, 0x1.6fa922p1f,
       0x1.c99b6ep1f, 0x1.044c7cp2f, 0x1.344754p2f, 0x1.4e594p2f, 0x1.765c0cp2f, 0x1.96a634p2f,
       0x1.bb0f76p2f, 0x1.e8f5c2p2f, 0x1.0cbcd6p3f, 0x1.14667p3f},
      {0x1.dbb5p-2f, 0x1.81277p-2f, 0x1.c83372p-3f, 0x1.19923cp-3f, 0x1.870302p-4f, 0x1.b69446p-5f,
       0x1.be78c2p-6f, 0x1.13dd6ep-6f, 0x1.070976p-7f, 0x1.5f0018p-8f, 0x1.78a09ep-9f,
       0x1.c753ccp-10f, 0x1.01f88p-10f, 0x1.f7f164p-12f, 0x1.d864f8p-13f, 0x1.73d1d4p-13f},
      {-0x1.fd6d68p-3f, -0x1.e092fp-3f, -0x1.629494p-3f, -0x1.e5b7d6p-4f, -0x1.61af6ep-4f,
       -0x1.9f1952p-5f, -0x1.b24e18p-6f, -0x1.0f3858p-6f, -0x1.04ececp-7f, -0x1.5d1ed4p-8f,
       -0x1.778b96p-9f, -0x1.c6894ap-10f, -0x1.01b77cp-10f, -0x1.f7b376p-12f, -0x1.d849cp-13f,
       -0x1.73c0e8p-13f},
      {0x1.20e26ap-7f, 0x1.dc3e4p-6f, 0x1.89397ep-5f, 0x1.6028cap-5f, 0x1.1e287p-5f, 0x1.72a792p-6f,
       0x1.9aa282p-7f, 0x1.06162ap-7f, 0x1.00bcfp-8f, 0x1.5960fcp-9f, 0x1.75628p-10f,
       0x1.c4f49p-11f, 0x1.01356ep-11f, 0x1.f7377ep-13f, 0x1.d80d68p-14f, 0x1.739f44p-14f},
      {0x1.4e7a46p-6f, 0x1.051d66p-6f, 0x1.2778fp-10f, -0x1.75e2fap-8f, -0x1.c63cdp-8f,
       -0x1.811e36p-8f, -0x1.e70874p-9f, -0x1.45b602p-9f, -0x1.4b486ep-10f, -0x1.c2a24p-11f,
       -0x1.ec122cp-12f, -0x1.2beaecp-12f, -0x1.55a838p-13f, -0x1.4ebf1ap-14f, -0x1.3aff42p-15f,
       -0x1.ef41e2p-16f},
      {-0x1.7d2128p-10f, -0x1.1f1722p-8f, -0x1.1a6b56p-8f, -0x1.8e35a8p-10f, -0x1.cdf928p-14f,
       0x1.7fd258p-11f, 0x1.754ef8p-11f, 0x1.182a9p-11f, 0x1.341282p-12f, 0x1.b04ae4p-13f,
       0x1.e229acp-14f, 0x1.288212p-14f, 0x1.53b872p-15f, 0x1.4dd90ep-16f, 0x1.2ffecep-17f,
       0x1.eef35cp-18f},
      {-0x1.fda266p-10f, -0x1.bba8c6p-11f, 0x1.80e336p-11f, 0x1.de429p-11f, 0x1.c7bc56p-12f,
       0x1.3d635ep-14f, -0x1.d520d8p-15f, -0x1.34ace4p-14f, -0x1.dafa54p-15f, -0x1.374514p-15f,
       -0x1.79f3e6p-16f, -0x1.b9b4f4p-17f, -0x1.fb3cd2p-18f, -0x1.1f6046p-18f, -0x1.412008p-19f,
       -0x1.6d8464p-20f}};
};
/// a / (1 + exp(a)).
struct silu_tail_pieces {
  static constexpr float most = 9.0f, square = -0x1.6855f6p-5f, step = 0x1.0ef976p1f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 0;
  alignas(64) static constexpr float rows[7][16] = {
      {0, 0x1.a246c6p-2f, 0x1.2239c6p0f, 0x1.63e08ap0f, 0x1.ed131ap0f, 0x1.3940cp1f, 0x1.a4617p1f,
       0x1.bfe77p1f, 0x1.14b7ap2f, 0x1.2b6e82p2f, 0x1.5666fcp2f, 0x1.83f48cp2f, 0x1.a739eep2f,
       0x1.cb1cb8p2f, 0x1.f91588p2f, 0x1.127808p3f},
      {0, 0x1.4e0476p-3f, 0x1.1aa818p-2f, 0x1.1bd36p-2f, 0x1.f5b278p-3f, 0x1.8f250ap-3f,
       0x1.e5d822p-4f, 0x1.a46f9ap-4f, 0x1.cf32c8p-5f, 0x1.60da06p-5f, 0x1.9e37b2p-6f,
       0x1.cdc766p-7f, 0x1.229beap-7f, 0x1.6818bap-8f, 0x1.827608p-9f, 0x1.a77082p-10f},
      {0x1p-1f, 0x1.3488fcp-2f, 0x1.1be81ap-5f, -0x1.710ae6p-6f, -0x1.62d2a8p-4f, -0x1.9885c6p-4f,
       -0x1.405d3ep-4f, -0x1.1ff3f2p-4f, -0x1.5e02dep-5f, -0x1.122f74p-5f, -0x1.4ed638p-6f,
       -0x1.8086ep-7f, -0x1.ec8c14p-8f, -0x1.359f9ap-8f, -0x1.5158f8p-9f, -0x1.75fdc2p-10f},
      {-0x1.ffffcp-3f, -0x1.d70336p-3f, -0x1.0b873ep-3f, -0x1.7c9a82p-4f, -0x1.00643ap-5f,
       0x1.143048p-9f, 0x1.2aa034p-6f, 0x1.2dd16ap-6f, 0x1.d372a8p-7f, 0x1.8370a2p-7f,
       0x1.fc7fe4p-8f, 0x1.328f5ep-8f, 0x1.93559ap-9f, 0x1.02f39ap-9f, 0x1.202008p-10f,
       0x1.447b26p-11f},
      {-0x1.40cf18p-16f, 0x1.00c598p-5f, 0x1.a0da88p-5f, 0x1.7c2778p-5f, 0x1.e2fa38p-6f,
       0x1.ccc9aap-7f, 0x1.20479cp-10f, -0x1.7e65dp-12f, -0x1.2caa2p-9f, -0x1.266848p-9f,
       -0x1.c9bf6ap-10f, -0x1.2f253cp-10f, -0x1.a18b6p-11f, -0x1.15405p-11f, -0x1.3e4cd2p-12f,
       -0x1.6e8bc8p-13f},
      {0x1.594612p-6f, 0x1.059e36p-6f, -0x1.3ff234p-9f, -0x1.95e41cp-8f, -0x1.11aac8p-7f,
       -0x1.8ec0a6p-8f, -0x1.f4ef96p-10f, -0x1.65f7bcp-10f, -0x1.9fcfcp-15f, 0x1.e0a0ccp-14f,
       0x1.c77756p-13f, 0x1.85d5acp-13f, 0x1.273864p-13f, 0x1.a1224p-14f, 0x1.f905f2p-15f,
       0x1.2cb9dp-15f},
      {-0x1.3aa248p-10f, -0x1.341006p-8f, -0x1.3dc2f6p-8f, -0x1.e78482p-10f, 0x1.00cb36p-11f,
       0x1.291e6cp-10f, 0x1.ccc03ap-11f, 0x1.fc7fb2p-12f, 0x1.b21f14p-13f, 0x1.0ef34ap-14f,
       0x1.3ed356p-18f, -0x1.de27ep-17f, -0x1.0ef16ap-16f, -0x1.abefeap-17f, -0x1.218fbp-17f,
       -0x1.63c76cp-18f}};
};
/// a P(X > a) of a standard normal X.
struct gelu_tail_pieces {
  static constexpr float most = 5.55f, coarse = most, square = 0x1.109eeep-2f, step = 0x1.503b7ap0f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 0;
  alignas(64) static constexpr float rows[8][16] = {
      {0, 0x1.4977f8p-1f, 0x1.29e644p0f, 0x1.d45f8p0f, 0x1.15c474p1f, 0x1.4e7e06p1f, 0x1.6fac46p1f,
       0x1.a35d1ap1f, 0x1.cad476p1f, 0x1.f012acp1f, 0x1.0aea9p2f, 0x1.1b277ep2f, 0x1.330616p2f,
       0x1.3f72fp2f, 0x1.4fded8p2f, 0x1.5c4122p2f},
      {0, 0x1.569588p-3f, 0x1.236a24p-3f, 0x1.f86ff2p-5f, 0x1.0aadbcp-5f, 0x1.8005ap-7f,
       0x1.7f6074p-8f, 0x1.c3b166p-10f, 0x1.3d38d6p-11f, 0x1.b04ab2p-13f, 0x1.09c036p-14f,
       0x1.671e62p-16f, 0x1.02efeap-18f, 0x1.919988p-20f, 0x1.b14536p-22f, 0x1.34bc9cp-23f},
      {0x1p-1f, 0x1.a3cd0ep-5f, -0x1.d15174p-4f, -0x1.a6de5ep-4f, -0x1.133136p-4f, -0x1.e860d2p-6f,
       -0x1.0df628p-6f, -0x1.6d658cp-8f, -0x1.19b772p-9f, -0x1.9ffbc6p-11f, -0x1.13a122p-12f,
       -0x1.8b879ap-14f, -0x1.3591d4p-16f, -0x1.f3c618p-18f, -0x1.1b9544p-19f, -0x1.a32b3ap-21f},
      {-0x1.988446p-2f, -0x1.075b04p-2f, -0x1.0c20c8p-4f, 0x1.9cef72p-5f, 0x1.a44432p-5f,
       0x1.038f76p-5f, 0x1.4a0c3ap-6f, 0x1.0a7deap-7f, 0x1.cbcfdap-9f, 0x1.74cbe6p-10f,
       0x1.0d09bp-11f, 0x1.9cef9p-13f, 0x1.61c892p-15f, 0x1.2a551cp-16f, 0x1.659924p-18f,
       0x1.12d9b8p-19f},
      {-0x1.ef2c0cp-18f, 0x1.fed248p-4f, 0x1.aa0f14p-4f, 0x1.e7cf3p-7f, -0x1.3e4c26p-7f,
       -0x1.08e746p-6f, -0x1.add106p-7f, -0x1.c0c6b8p-8f, -0x1.c0224ap-9f, -0x1.979f0ap-10f,
       -0x1.456ac4p-11f, -0x1.0dd4eep-12f, -0x1.ffba26p-15f, -0x1.c50ed8p-16f, -0x1.204f86p-17f,
       -0x1.ce61cap-19f},
      {0x1.10b448p-4f, 0x1.198afep-6f, -0x1.f8550ap-6f, -0x1.a3b92p-6f, -0x1.5f4458p-7f,
       0x1.961f3ap-10f, 0x1.f7ed94p-9f, 0x1.c0897ap-9f, 0x1.17a1b2p-9f, 0x1.28f868p-10f,
       0x1.0d15bp-11f, 0x1.e9c23p-13f, 0x1.06d612p-14f, 0x1.e83568p-16f, 0x1.4c252ap-17f,
       0x1.174bc8p-18f},
      {-0x1.c75fcap-12f, -0x1.7bfd0ep-6f, -0x1.3d808cp-7f, 0x1.2a7254p-7f, 0x1.044268p-7f,
       0x1.8666fp-9f, 0x1.83ecbap-11f, -0x1.9497ecp-11f, -0x1.a6ce68p-11f, -0x1.21fd16p-11f,
       -0x1.3a9536p-12f, -0x1.4393a6p-13f, -0x1.748218p-15f, -0x1.894f5ep-16f, -0x1.1e8ac4p-17f,
       -0x1.0370cep-18f},
      {-0x1.2bb91cp-7f, 0x1.6c6a1ep-12f, 0x1.b5c95p-8f, 0x1.52b462p-9f, -0x1.4abfa4p-10f,
       -0x1.f40c14p-10f, -0x1.1acfp-10f, -0x1.293868p-12f, 0x1.5cfa32p-14f, 0x1.4eae86p-13f,
       0x1.03435p-13f, 0x1.34dc58p-14f, 0x1.37034ap-15f, 0x1.1c1dd4p-16f, 0x1.ddd95ep-18f,
       0x1.7b9b3cp-19f}};
};
/// a / (1 + exp(sqrt(8 / pi) (a + 0.044715 a^3))).
struct gelu_tanh_tail_pieces {
  static constexpr float most = 5.06f, square = 0x1.8a3c48p-2f, step = 0x1.1cf9d6p0f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 0;
  alignas(64) static constexpr float rows[8][16] = {
      {0, 0x1.5dd838p-1f, 0x1.64cbcp0f, 0x1.bc067p0f, 0x1.111d42p1f, 0x1.44b608p1f, 0x1.64365p1f,
       0x1.8d2e2cp1f, 0x1.a83226p1f, 0x1.d2752p1f, 0x1.f0db72p1f, 0x1.0b4e14p2f, 0x1.1601c8p2f,
       0x1.236eeep2f, 0x1.34273ep2f, 0x1.3eff02p2f},
      {0, 0x1.5a0c24p-3f, 0x1.d35a18p-4f, 0x1.26b31ap-4f, 0x1.1d80eap-5f, 0x1.c22d06p-7f,
       0x1.cc9edcp-8f, 0x1.54e2c2p-9f, 0x1.46a62ap-10f, 0x1.68798ap-12f, 0x1.ffbbdap-14f,
       0x1.ed5eeap-16f, 0x1.9a5f56p-17f, 0x1.fa221ep-19f, 0x1.9d757p-21f, 0x1.117a92p-22f},
      {0x1p-1f, 0x1.03035ap-5f, -0x1.07ea7ep-3f, -0x1.cec4eap-4f, -0x1.260632p-4f, -0x1.2074dep-5f,
       -0x1.4c5808p-6f, -0x1.1beb1ep-7f, -0x1.298aaep-8f, -0x1.773b8p-10f, -0x1.23e85cp-11f,
       -0x1.39f05cp-13f, -0x1.153eb6p-14f, -0x1.6fe438p-16f, -0x1.483922p-18f, -0x1.cafb38p-20f},
      {-0x1.988438p-2f, -0x1.ef3cbap-3f, -0x1.551d26p-8f, 0x1.68311cp-5f, 0x1.aed0fp-5f,
       0x1.2974dcp-5f, 0x1.922f0ep-6f, 0x1.9b7adcp-7f, 0x1.e03052p-8f, 0x1.61b568p-9f,
       0x1.316074p-10f, 0x1.73124cp-12f, 0x1.5e1476p-13f, 0x1.f737c2p-15f, 0x1.edece4p-17f,
       0x1.6e937ap-18f},
      {-0x1.c2b618p-17f, 0x1.03ffe6p-3f, 0x1.2630d4p-4f, 0x1.aa7d86p-6f, -0x1.d6d01ep-8f,
       -0x1.0d951p-6f, -0x1.e6a0ccp-7f, -0x1.452986p-7f, -0x1.b5c586p-8f, -0x1.87633ap-9f,
       -0x1.7e7dcap-10f, -0x1.0b904ap-11f, -0x1.1004p-12f, -0x1.ab8256p-14f, -0x1.d227cp-16f,
       -0x1.7125fap-17f},
      {0x1.124694p-4f, 0x1.883954p-7f, -0x1.26e508p-5f, -0x1.daf862p-6f, -0x1.99e51cp-7f,
       -0x1.54b5d4p-12f, 0x1.9740ap-9f, 0x1.0b944ap-8f, 0x1.cb82f8p-9f, 0x1.0f7e6p-9f,
       0x1.37792cp-10f, 0x1.02f06ep-11f, 0x1.1f45bcp-12f, 0x1.f46ea4p-14f, 0x1.3340eap-15f,
       0x1.054352p-16f},
      {-0x1.49e81ep-11f, -0x1.7b72e6p-6f, -0x1.95839cp-13f, 0x1.e087a2p-8f, 0x1.014dcp-7f,
       0x1.055c1ap-8f, 0x1.ba3d5ap-10f, -0x1.e19df2p-13f, -0x1.942e14p-11f, -0x1.bc17d2p-11f,
       -0x1.47c21ep-11f, -0x1.54f2eep-12f, -0x1.ac0276p-13f, -0x1.a77c54p-14f, -0x1.236ad6p-15f,
       -0x1.13c4fp-16f},
      {-0x1.2b227p-7f, 0x1.8a0b6ap-10f, 0x1.a7d514p-8f, 0x1.346a5p-9f, -0x1.e5ed94p-11f,
       -0x1.caabdcp-10f, -0x1.6d2b8cp-10f, -0x1.79b9d8p-11f, -0x1.bbb4dp-13f, 0x1.6ff32cp-14f,
       0x1.6e3da8p-13f, 0x1.4e428cp-13f, 0x1.c932a2p-14f, 0x1.06379cp-14f, 0x1.06cadp-15f,
       0x1.dc1d9p-17f}};
};
/// The derivative of gelu at -a; the last interval is 0.
struct gelu_slope_pieces {
  static constexpr float most = 6.2315f, square = -0x1.e569eep-3f, step = 0x1.ea1cc4p1f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 0;
  alignas(64) static constexpr float rows[7][16] = {
      {0x1.5ef998p-4f, 0x1.d76022p-3f, 0x1.0d4bdp-1f, 0x1.e0bfbep-1f, 0x1.1c117p0f, 0x1.7b3abep0f,
       0x1.d1cfd4p0f, 0x1.12f26ep1f, 0x1.4016a8p1f, 0x1.667c2p1f, 0x1.a90212p1f, 0x1.e63a48p1f,
       0x1.0cb8aep2f, 0x1.31dd6ap2f, 0x1.7de24ep2f, 0},
      {0x1.ba2964p-2f, 0x1.473ad6p-2f, 0x1.de202cp-4f, -0x1.13281p-4f, -0x1.b0893ap-4f,
       -0x1.062b7ap-3f, -0x1.aafb34p-4f, -0x1.1c8232p-4f, -0x1.33b032p-5f, -0x1.40c202p-6f,
       -0x1.40eeccp-8f, -0x1.11242p-10f, -0x1.ed9074p-13f, -0x1.5039e2p-16f, -0x1.712a2ep-25f, 0},
      {-0x1.958694p-1f, -0x1.834ce6p-1f, -0x1.328972p-1f, -0x1.25fe84p-2f, -0x1.535434p-3f,
       0x1.a83c48p-6f, 0x1.992698p-4f, 0x1.a943ap-4f, 0x1.30da76p-4f, 0x1.7a3982p-5f,
       0x1.dc2e9ap-7f, 0x1.de130ep-9f, 0x1.e5798p-11f, 0x1.7e6b5ap-14f, 0x1.fa3bf8p-23f, 0},
      {0x1.167fb2p-4f, 0x1.696bd4p-3f, 0x1.5c5614p-2f, 0x1.80dc16p-2f, 0x1.530ca8p-2f,
       0x1.6cb9a6p-3f, 0x1.875d86p-5f, -0x1.ad21c6p-6f, -0x1.93e36ep-5f, -0x1.5c5e48p-5f,
       -0x1.33b178p-6f, -0x1.7cf56ep-8f, -0x1.bc6464p-10f, -0x1.9d3cep-13f, -0x1.2e5a32p-21f, 0},
      {0x1.0be0ccp-2f, 0x1.e18c88p-3f, 0x1.fb64c2p-4f, -0x1.ea500ap-5f, -0x1.c89a32p-4f,
       -0x1.299cdcp-3f, -0x1.ab8e4ep-4f, -0x1.7c64e2p-5f, -0x1.fe71dap-10f, 0x1.c93d52p-7f,
       0x1.a9ebd8p-7f, 0x1.649e9p-8f, 0x1.f0a2a8p-10f, 0x1.1b13a6p-12f, 0x1.aa22b6p-19f, 0},
      {-0x1.9f24a4p-6f, -0x1.097178p-4f, -0x1.d29a72p-4f, -0x1.7eecf6p-4f, -0x1.e6c386p-5f,
       0x1.61b852p-7f, 0x1.61cbfp-5f, 0x1.4d49b4p-5f, 0x1.5d9438p-6f, 0x1.9a510ep-8f,
       -0x1.06b024p-8f, -0x1.9ac82cp-9f, -0x1.70e74cp-10f, -0x1.0c68fcp-12f, 0x1.30aa4ap-18f, 0},
      {-0x1.e71236p-5f, -0x1.7a742p-5f, -0x1.9f8966p-7f, 0x1.782238p-6f, 0x1.499514p-5f,
       0x1.0dd73ap-5f, 0x1.734dcap-7f, -0x1.ba084ep-8f, -0x1.80adecp-7f, -0x1.c6ae3cp-8f,
       -0x1.3d8af8p-10f, 0x1.d5a02ap-11f, 0x1.406322p-11f, 0x1.1c8886p-13f, 0x1.1f1b5p-17f, 0}};
};
/// The derivative of gelu_tanh at -a; the last interval is 0.
struct gelu_tanh_slope_pieces {
  static constexpr float most = 5.562f, square = -0x1.30a726p-2f, step = 0x1.128dbep2f;
  static constexpr bool by_octaves = false, adds_argument = false;
  static constexpr int pairs = 0;
  alignas(64) static constexpr float rows[7][16] = {
      {0x1.dc86c6p-5f, 0x1.c60292p-3f, 0x1.0e128cp-1f, 0x1.882d16p-1f, 0x1.ffc8aep-1f, 0x1.4c428p0f,
       0x1.ad520ap0f, 0x1.044754p1f, 0x1.2991eep1f, 0x1.4c7beap1f, 0x1.8877f6p1f, 0x1.a3b67p1f,
       0x1.ecebfap1f, 0x1.28e48p2f, 0x1.3ac1a8p2f, 0},
      {0x1.d086f6p-2f, 0x1.4dd31cp-2f, 0x1.dafe58p-4f, -0x1.785e1cp-8f, -0x1.5366eap-4f,
       -0x1.018f6p-3f, -0x1.e24fcap-4f, -0x1.51e3f2p-4f, -0x1.b0505p-5f, -0x1.fba45cp-6f,
       -0x1.3b8f88p-7f, -0x1.4cd48ep-8f, -0x1.4bb4fp-11f, -0x1.c9f0ap-17f, -0x1.5cb8fp-19f, 0},
      {-0x1.97212ap-1f, -0x1.84b73p-1f, -0x1.31aef4p-1f, -0x1.ae0084p-2f, -0x1.f08b1ep-3f,
       -0x1.c7fbe8p-5f, 0x1.3ea244p-4f, 0x1.b9ae52p-4f, 0x1.7aee88p-4f, 0x1.10e974p-4f,
       0x1.c07b54p-6f, 0x1.07f3dap-6f, 0x1.56779p-9f, 0x1.44dde2p-14f, 0x1.0ed7bcp-16f, 0},
      {0x1.7d1bd8p-5f, 0x1.5e9bc4p-3f, 0x1.5d5ed6p-2f, 0x1.8d588p-2f, 0x1.71a024p-2f,
       0x1.06a164p-2f, 0x1.948da2p-4f, -0x1.0903e6p-8f, -0x1.59547ep-5f, -0x1.92e148p-5f,
       -0x1.02b24cp-5f, -0x1.60ed68p-6f, -0x1.3cc866p-8f, -0x1.978ff4p-13f, -0x1.901a52p-15f, 0},
      {0x1.0f977ap-2f, 0x1.e77092p-3f, 0x1.f362b6p-4f, 0x1.3dff7cp-7f, -0x1.4e0922p-4f,
       -0x1.1ec5d8p-3f, -0x1.fb55d6p-4f, -0x1.0e31e2p-4f, -0x1.7706aep-6f, 0x1.a06782p-9f,
       0x1.0ca468p-6f, 0x1.dc1f8cp-7f, 0x1.51846p-8f, 0x1.a40c98p-12f, 0x1.7e8c26p-14f, 0},
      {-0x1.2211fp-6f, -0x1.05ba9ap-4f, -0x1.dbee3ap-4f, -0x1.cce2f6p-4f, -0x1.41736p-4f,
       -0x1.3dc276p-6f, 0x1.1b6ca4p-5f, 0x1.6cd12p-5f, 0x1.023924p-5f, 0x1.14931ap-6f,
       -0x1.e1b1c8p-11f, -0x1.d39adcp-9f, -0x1.ae5382p-9f, -0x1.133b4cp-13f, -0x1.ec9758p-14f, 0},
      {-0x1.064e1cp-4f, -0x1.9722f8p-5f, -0x1.44103p-6f, 0x1.e3d2cap-7f, 0x1.3297a4p-5f,
       0x1.3a70a6p-5f, 0x1.70f3d4p-6f, 0x1.b44e72p-9f, -0x1.0ed404p-7f, -0x1.4f03fp-7f,
       -0x1.9453fp-8f, -0x1.436b34p-10f, 0x1.035f36p-10f, 0x1.45e32cp-11f, 0x1.370d9ap-14f, 0}};
};
#endif
