#pragma once

#include <string_view>

#include "ikebana/core/dtype.hpp"
#include "ikebana/core/text.hpp"
#include "ikebana/module/named.hpp"

namespace ikebana::detail {

/// The text of a diagnostic such as "mse_loss expects a target of type float, got double": Start,
/// the name of Expected, ", got ", the name of Got, End.
template <literal Start, class Expected, class Got, literal End = "">
inline constexpr text<200> element_mismatch = text<200>{Start.data}
                                                  .append(element_name<Expected>())
                                                  .append(", got ")
                                                  .append(element_name<Got>())
                                                  .append(End.data);

}  // namespace ikebana::detail
