#include "serving/action_names.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/names.h"
#include "data/read/field_values.h"

namespace seqfuse::serving {
namespace {

constexpr size_t kNamesShown = 12;

std::optional<int64_t> find_name(const std::vector<std::string>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return found - names.begin();
}

std::optional<int64_t> find_class(const data::Manifest& manifest, std::string_view text) {
  if (const auto label = find_name(manifest.action_names, text)) return label;
  const auto number = data::parse_double(text);
  if (!number) return std::nullopt;
  std::optional<int64_t> equal;
  bool numbers = false;
  for (size_t label = 0; label < manifest.action_names.size(); ++label) {
    const auto value = data::parse_double(manifest.action_names[label]);
    numbers |= value.has_value();
    if (value != number) continue;
    if (equal) return std::nullopt;  // "4" and "4.0" are both classes: exact names only
    equal = static_cast<int64_t>(label);
  }
  if (numbers) return equal;
  return data::parse_canonical_int64(text);
}

std::optional<int64_t> find_bits(const data::Manifest& manifest, std::string_view text) {
  if (const auto mask = data::parse_canonical_int64(text)) return mask;
  if (const auto bit = find_name(manifest.action_names, text)) return int64_t{1} << *bit;
  int64_t mask = 0;
  for (size_t plus = 0; plus != std::string_view::npos;) {
    plus = text.find('+');
    const auto bit = find_name(manifest.action_names, data::trim(text.substr(0, plus)));
    if (!bit) return std::nullopt;
    mask |= int64_t{1} << *bit;
    if (plus != std::string_view::npos) text.remove_prefix(plus + 1);
  }
  return mask;
}

}  // namespace

int64_t find_action(const data::Manifest& manifest, std::string_view text) {
  if (manifest.action_kind == data::ActionKind::none) {
    throw_error<UsageError>("dataset {} has no actions: leave them out", manifest.dataset_name);
  }
  const bool bits = manifest.action_kind == data::ActionKind::bits;
  const auto label = bits ? find_bits(manifest, text) : find_class(manifest, text);
  if (label && *label >= 0 && *label < manifest.num_actions) return *label;
  const auto& names = manifest.action_names;
  const auto some = std::span(names).first(std::min(names.size(), kNamesShown));
  throw_error<UsageError>(
      "dataset {} has no action '{}'{}: {}{}{}", manifest.dataset_name, text,
      did_you_mean(text, names),
      bits ? "give names joined by + or an integer of bits, least significant first: "
           : "give one of ",
      names.empty() ? fmt::format("0 to {}", manifest.num_actions - 1)
                    : fmt::format("{}", fmt::join(some, ", ")),
      some.size() < names.size() ? ", ..." : "");
}

std::string action_text(const data::Manifest& manifest, int64_t label) {
  const auto& names = manifest.action_names;
  if (manifest.action_kind == data::ActionKind::classes) {
    return label < std::ssize(names) ? names[label] : std::to_string(label);
  }
  std::string text;
  for (int64_t bit = 0; bit < std::ssize(names); ++bit) {
    if ((label >> bit & 1) != 0) text += (text.empty() ? "" : "+") + names[bit];
  }
  return find_bits(manifest, text) == label ? text : std::to_string(label);
}

}  // namespace seqfuse::serving
