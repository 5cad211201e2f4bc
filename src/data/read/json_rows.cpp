#include "data/read/json_rows.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/names.h"
#include "data/read/text_encoding.h"

namespace seqfuse::data {
namespace {

constexpr std::string_view kList = "[...]";
constexpr size_t kMembersShown = 12;

// Passes each scalar of an object, and each list, to a visitor with its path; keeps nothing of what
// is inside lists.
template <class Visit>
class Members final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Members(Visit& visit) : visit_(visit) {}

  const std::string& problem() const { return problem_; }

  bool null() override { return value(""); }
  bool boolean(bool value_of) override { return value(value_of ? "true" : "false"); }
  bool number_integer(number_integer_t number) override { return value(std::to_string(number)); }
  bool number_unsigned(number_unsigned_t number) override { return value(std::to_string(number)); }
  bool number_float(number_float_t /*number*/, const string_t& as_written) override {
    return value(as_written);
  }
  bool string(string_t& text) override { return value(text); }
  bool binary(binary_t& /*bytes*/) override { return false; }

  bool start_object(std::size_t /*size*/) override {
    if (in_lists_ > 0) return ++in_lists_ > 0;
    prefixes_.push_back(path_.size());
    return true;
  }
  bool key(string_t& name) override {
    if (in_lists_ > 0) return true;
    path_.resize(prefixes_.back());
    if (prefixes_.size() > 1) path_ += '.';
    path_ += name;
    return true;
  }
  bool end_object() override {
    if (in_lists_ > 0) return --in_lists_ >= 0;
    path_.resize(prefixes_.back());
    prefixes_.pop_back();
    return true;
  }
  bool start_array(std::size_t /*size*/) override {
    if (in_lists_ == 0 && !value(kList)) return false;
    return ++in_lists_ > 0;
  }
  bool end_array() override { return --in_lists_ >= 0; }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& /*error*/) override {
    problem_ = fmt::format(
        "the row is not valid JSON at its character {}, after '{}'; expected one object a row",
        position, excerpt(token));
    return false;
  }

 private:
  bool value(std::string_view text) {
    if (in_lists_ > 0) return true;
    if (prefixes_.empty()) {
      problem_ = text == kList ? "the row is a list; expected an object: {\"user\": 1, ...}"
                               : "expected an object: {\"user\": 1, ...}";
      return false;
    }
    visit_(path_, text);
    return true;
  }

  Visit& visit_;
  std::string problem_, path_;
  std::vector<size_t> prefixes_;  // the length of each open object's path
  int64_t in_lists_ = 0;          // open lists, and objects inside them
};

template <class Visit>
std::string visit_members(std::string_view row, Visit visit) {
  Members<Visit> members(visit);
  nlohmann::json::sax_parse(row.begin(), row.end(), &members);
  return members.problem();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> json_members(std::string_view row) {
  std::vector<std::pair<std::string, std::string>> members;
  const std::string problem = visit_members(
      row,
      [&](const std::string& path, std::string_view value) { members.emplace_back(path, value); });
  if (!problem.empty()) members.clear();
  return members;
}

JsonRow::JsonRow(std::vector<std::string> names, size_t required)
    : names_(std::move(names)),
      required_(required),
      values_(names_.size()),
      seen_(names_.size()),
      fields_(names_.size()) {}

std::string JsonRow::parse(std::string_view row) {
  present_.assign(names_.size(), false);
  std::string list;
  std::string problem = visit_members(row, [&](const std::string& path, std::string_view value) {
    const auto name = std::ranges::find(names_, path);
    if (name == names_.end()) return;
    const auto n = static_cast<size_t>(name - names_.begin());
    if (value.data() == kList.data()) list = path;
    values_[n] = value;
    present_[n] = true;
  });
  if (!problem.empty()) return problem;
  if (!list.empty()) return fmt::format("column {} is a list; expected one value", list);
  for (size_t n = 0; n < names_.size(); ++n) {
    if (present_[n]) {
      seen_[n] = true;
    } else if (n < required_) {
      std::vector<std::string> members, others;
      for (auto& [name, value] : json_members(row)) {
        if (std::ranges::find(names_, name) == names_.end()) others.push_back(name);
        members.push_back(std::move(name));
      }
      const std::string near = did_you_mean(names_[n], others);
      const bool all = members.size() <= kMembersShown;
      if (!all) members.resize(kMembersShown);
      return fmt::format("the row has no '{}'{}; it has: {}{}", names_[n], near,
                         fmt::join(members, ", "), all ? "" : ", ...");
    } else {
      values_[n].clear();
    }
    fields_[n] = values_[n];
  }
  return "";
}

}  // namespace seqfuse::data
