#pragma once

namespace ikebana {

/// How a loss combines the losses of single elements or rows.
enum class reduction : unsigned char { mean, sum };

}  // namespace ikebana
