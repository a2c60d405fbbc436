// Of exp, log and their kin: minimax fits (Remez) to the function named beside them; argument
// reductions are those of W. Cody and W. Waite, and of FreeBSD's msun for log of double.

template <class T>
struct coefficients;
template <>
struct coefficients<float> {
  // (exp(r) - 1 - r) / r^2 on |r| <= log(2) / 2.
  static constexpr float exp_tail[] = {0.5f,
                                       0.166666667569f,
                                       0.0416662390042f,
                                       0.00833328583656f,
                                       0.00139487004863f,
                                       0.00019907704449f};
  // (log(1 + f) - f + f^2 / 2) / f^3 on sqrt(1/2) <= 1 + f <= sqrt(2).
  static constexpr float log_tail[] = {0.333333317411f,  -0.250008210398f, 0.200012234672f,
                                       -0.166233526581f, 0.142018298848f,  -0.131603090155f,
                                       0.127611601113f,  -0.0763365658066f};
  static constexpr float log2_high = 0x1.63p-1f, log2_low = -0x1.bd0106p-13f;
  static constexpr float exp_least = -120, exp_most = 89, tanh_one = 10;
  static constexpr float least_normal = 0x1p-126f, lift = 0x1p24f, lift_log2 = 24;
  static constexpr std::int32_t sqrt_half = 0x3F3504F3;
};
template <>
struct coefficients<double> {
  static constexpr double exp_tail[] = {
      0.50000000000000000085,     0.16666666666666676518,   0.041666666666666508707,
      0.0083333333333216817887,   0.0013888888888962411171, 0.00019841269885993848562,
      0.000024801587172476036038, 2.7557244343117587099e-6, 2.7557402672702436682e-7,
      2.5108990659311914228e-8,   2.0875329247342725384e-9};
  // (log(1 + f) - 2 s) / s in z = s^2, s = f / (2 + f).
  static constexpr double log_tail[] = {6.666666666666735130e-01, 3.999999999940941908e-01,
                                        2.857142874366239149e-01, 2.222219843214978396e-01,
                                        1.818357216161805012e-01, 1.531383769920937332e-01,
                                        1.479819860511658591e-01};
  static constexpr double erf_small[] = {
      0.12837916709551256567,    -0.37612638903183519723,     0.11283791670944189153,
      -0.026866170643111916707,  0.0052239776061210871083,    -0.00085483259294127026465,
      0.00012055293579390651505, -0.000014924712344879740149, 1.6447132063609869913e-6,
      -1.6206317357913451466e-7, 1.371099551352749126e-8,     -7.7794961905489158183e-10};
  // (a + 5) P(X > a) exp(a^2 / 2) of a standard normal X in s = (a - 5) / (a + 5), 0 <= a <= 38.8
  // (apart from the constant), and roughly its derivative by w = a / (a + 5) after multiplication
  // with w.
  static constexpr double normal_constant = 0.76919304975006295597,
                          normal_constant_low = -1.7787e-17;
  static constexpr double normal_linear = -0.66538250289005678074, normal_linear_low = -4.3419e-17;
  static constexpr double normal[] = {
      0.49530561596997728296,      -0.3135331566712962377,     0.16502036617033827229,
      -0.069118638706568630463,    0.020795066800819907971,    -0.002993376766728659332,
      -0.00079786940782261547783,  0.00054489903361854087569,  -0.000059375675913802608824,
      -0.000049762656309879481561, 0.000016681045242223746403, 3.9803901311365292825e-6,
      -2.7689610702923334868e-6,   -3.3555045350195279964e-7,  4.3289418528450214387e-7,
      4.0900202970532093838e-8,    -6.6015936578398662377e-8,  -8.3110754006986329778e-9,
      7.9399527339079105361e-9,    1.437678390435003142e-9,    -3.006934390662522335e-10};
  // (P(X <= x) - 1 / 2) / x in x^2 <= 2^-8.
  static constexpr double normal_series[] = {0.39894228040143267794, -0.066490380066905446323,
                                             0.0099735570100358169485, -0.0011873282154804543986,
                                             0.00011543468761615528876};
  static constexpr double normal_slope[] = {0.114, -0.287, 0.381, -0.865, 0.837};
  static constexpr double normal_center = 5, normal_limit = 38.8;
  static constexpr double log2_high = 6.93147180369123816490e-01,
                          log2_low = 1.90821492927058770002e-10;
  static constexpr double exp_least = -760, exp_most = 710, tanh_one = 20;
  static constexpr double least_normal = 0x1p-1022, lift = 0x1p54, lift_log2 = 54;
  static constexpr std::int64_t sqrt_half = 0x3FE6A09E667F3BCD;
};
