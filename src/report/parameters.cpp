#include "report/parameters.h"

#include <algorithm>
#include <map>
#include <variant>

#include "config/args.h"
#include "config/parser.h"

namespace seqfuse::report {

Parameters split_parameters(std::string_view text) {
  Parameters parameters;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    if (line.empty() || line[0] == '#') continue;
    const size_t equals = line.find(" = ");
    // Lists and dictionaries continue on lines that are indented or close a bracket.
    const bool goes_on = line[0] == ' ' || line[0] == ']' || line[0] == '}';
    if (!goes_on && equals != std::string_view::npos) {
      parameters.emplace_back(line.substr(0, equals), line.substr(equals + 3));
    } else if (!parameters.empty()) {
      parameters.back().second.append("\n").append(line);
    }
  }
  return parameters;
}

std::vector<Difference> differences(const std::vector<Parameters>& runs) {
  std::vector<Difference> all;
  std::map<std::string, size_t> places;
  for (size_t r = 0; r < runs.size(); ++r) {
    for (const auto& [name, value] : runs[r]) {
      const auto [place, is_new] = places.emplace(name, all.size());
      if (is_new) all.push_back({name, std::vector<std::string>(runs.size())});
      all[place->second].values[r] = value;
    }
  }
  std::erase_if(all, [](const Difference& difference) {
    return std::all_of(difference.values.begin(), difference.values.end(),
                       [&](const auto& value) { return value == difference.values[0]; });
  });
  return all;
}

std::vector<std::string> reported_metrics(const std::string& file, std::string_view text,
                                          config::Task task) {
  std::vector<std::string> names;
  std::string watched;
  for (const config::Statement& statement : config::parse_gin(file, text)) {
    const auto* binding = std::get_if<config::Binding>(&statement);
    if (binding == nullptr) continue;
    const auto& [location, data] = binding->value;
    const auto* list = std::get_if<config::List>(&data);
    if (binding->parameter == "eval_metrics" && list != nullptr &&
        binding->class_name == (task == config::Task::ranking ? config::RankingArgs::kName
                                                              : config::RetrievalArgs::kName)) {
      for (const config::Value& item : list->items) {
        if (const auto* name = std::get_if<std::string>(&item.data)) names.push_back(*name);
      }
    }
    const auto* name = std::get_if<std::string>(&data);
    if (binding->parameter == "early_stopping_metric" && name != nullptr) watched = *name;
  }
  if (!watched.empty()) names.insert(names.begin(), watched);
  return names;
}

}  // namespace seqfuse::report
