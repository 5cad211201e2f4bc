#include "data/ingest/input_roles.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"

namespace seqfuse::data {
namespace {

constexpr int64_t kNamesShown = 12;

}  // namespace

std::string shown_names(const std::vector<std::string>& names) {
  const auto end = names.begin() + std::min<int64_t>(std::ssize(names), kNamesShown);
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "), end < names.end() ? ", ..." : "");
}

bool InputRoles::is_log(const InputMember& member) const {
  const std::string name = member.base_name();
  if (is_titles(member) || is_users(member)) return false;
  if (options_.kind == InputKind::processed_seqs) return name.ends_with(".csv") || !is_part(member);
  if (!format_.from_flags) return format_.log.matches(name);
  return format_.log.empty() || format_.log.matches(name) || !is_part(member);
}

bool InputRoles::is_users(const InputMember& member) const {
  return options_.kind == InputKind::log && format_.users &&
         format_.users->file.matches(member.base_name());
}

bool InputRoles::is_titles(const InputMember& member) const {
  return format_.titles && format_.titles->file.matches(member.base_name());
}

void InputRoles::no_log(const std::vector<std::string>& names) const {
  std::string hint;
  for (const DatasetFormat& other : known_formats()) {
    const auto holds = [&](const std::string& name) {
      return other.log.matches(InputMember{name, ""}.base_name());
    };
    if (other.name != format_.name && std::any_of(names.begin(), names.end(), holds)) {
      hint = fmt::format("\n  is it --dataset-name {}?", other.name);
      break;
    }
  }
  throw_error<DataError>(
      "{} has no {} (the log of {}); it has: {}{}", options_.input.string(),
      format_.log.empty() ? "delimited text, JSON lines or Parquet with rows" : format_.log.text(),
      format_.name, shown_names(names), hint);
}

void InputRoles::no_users(const std::vector<std::string>& names) const {
  throw_error<DataError>("{} has no {} (context features of {}); it has: {}",
                         options_.input.string(), format_.users->file.text(), format_.name,
                         shown_names(names));
}

void InputRoles::no_titles(const std::vector<std::string>& names) const {
  throw_error<DataError>("{} has no {}, the file of titles; it has: {}", options_.input.string(),
                         format_.titles->file.text(), shown_names(names));
}

}  // namespace seqfuse::data
