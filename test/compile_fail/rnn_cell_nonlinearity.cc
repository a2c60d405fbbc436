// expect: rnn takes nonlinearity<.{1,2}tanh.{1,2}> or nonlinearity<.{1,2}relu.{1,2}>
// line: 5
#include <ikebana/nn/rnn_cell.hpp>

namespace ike = ikebana;

#ifdef MENDED
inline constexpr ike::rnn_cell<3, 4, ike::nonlinearity<"relu">> net;
#else
inline constexpr ike::rnn_cell<3, 4, ike::nonlinearity<"sigmoid">> net;
#endif
