// The code of fmt, compiled once. Header-only, it would be compiled again in every file that formats
// anything, which took about 9 seconds each.
#include <fmt/format-inl.h>

namespace fmt::detail {

template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;

}  // namespace fmt::detail
