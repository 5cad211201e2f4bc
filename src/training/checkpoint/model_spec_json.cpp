#include "training/checkpoint/model_spec_json.h"

#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace seqfuse::training {
using nlohmann::json;
namespace {

struct Writer {
  json object = json::object();

  template <class T>
  void operator()(const T& value, const char* name, const char* /*help*/ = "") {
    object[name] = value;
  }
  template <config::Choice E>
  void operator()(const E& value, const char* name, const char* /*help*/ = "") {
    object[name] = std::string(config::name_of(value));
  }
  template <config::Choice E>
  void operator()(const std::vector<E>& values, const char* name, const char* /*help*/ = "") {
    json& names = object[name] = json::array();
    for (const E value : values) names.push_back(std::string(config::name_of(value)));
  }
  template <class T>
  void operator()(const std::optional<T>& value, const char* name, const char* /*help*/ = "") {
    object[name] = value ? json(*value) : json(nullptr);
  }
  template <class T>
  void required(const T& value, const char* name, const char* help) {
    (*this)(value, name, help);
  }
};

struct Reader {
  const json& object;

  template <class T>
  void operator()(T& value, const char* name, const char* /*help*/ = "") {
    try {
      object.at(name).get_to(value);
    } catch (const json::exception& error) {
      throw_error<DataError>("the checkpoint's model description: {}: {}", name, error.what());
    }
  }
  template <config::Choice E>
  void operator()(E& value, const char* name, const char* help = "") {
    std::string text;
    (*this)(text, name, help);
    value = choice<E>(text, name);
  }
  template <config::Choice E>
  void operator()(std::vector<E>& values, const char* name, const char* help = "") {
    std::vector<std::string> texts;
    (*this)(texts, name, help);
    values.clear();
    for (const std::string& text : texts) values.push_back(choice<E>(text, name));
  }
  template <class T>
  void operator()(std::optional<T>& value, const char* name, const char* help = "") {
    const auto found = object.find(name);
    if (found != object.end() && found->is_null()) {
      value.reset();
    } else {
      (*this)(value.emplace(), name, help);
    }
  }
  template <class T>
  void required(T& value, const char* name, const char* help) {
    (*this)(value, name, help);
  }

  template <config::Choice E>
  static E choice(const std::string& text, const char* name) {
    const std::optional<E> found = config::find_choice<E>(text);
    if (!found) {
      throw_error<DataError>("the checkpoint's model description: {} is '{}': expected one of {}",
                             name, text, fmt::join(choice_names(E{}), ", "));
    }
    return *found;
  }
};

template <class Args>
json args_to_json(Args args) {
  Writer writer;
  args.visit(writer);
  return writer.object;
}

template <class Args>
void args_from_json(const json& spec, Args& args) {
  const auto found = spec.find(Args::kName);
  if (found == spec.end() || !found->is_object()) {
    throw_error<DataError>("the checkpoint's model description has no {}", Args::kName);
  }
  Reader reader{*found};
  args.visit(reader);
}

// The fields that are not gin classes, listed once for both directions.
template <class Spec, class V>
void visit_sizes(Spec& spec, V& v) {
  v(spec.task, "task");
  v(spec.max_history, "max_history");
  v(spec.max_candidates, "max_candidates");
  v(spec.scaling_seqlen, "scaling_seqlen");
  v(spec.num_items, "num_items");
  v(spec.num_actions, "num_actions");
  v(spec.dataset_hash, "dataset_hash");
}

}  // namespace

json to_json(const models::hstu::ModelSpec& spec) {
  Writer writer;
  visit_sizes(spec, writer);
  json object = std::move(writer.object);
  object[config::NetworkArgs::kName] = args_to_json(spec.network);
  object[config::RankingArgs::kName] = args_to_json(spec.ranking);
  object[config::RetrievalArgs::kName] = args_to_json(spec.retrieval);
  object["context"] = json::array();
  for (const data::ContextFeature& feature : spec.context) {
    object["context"].push_back({{"name", feature.name}, {"vocab_size", feature.vocab_size}});
  }
  return object;
}

models::hstu::ModelSpec spec_from_json(const json& object) {
  models::hstu::ModelSpec spec;
  Reader reader{object};
  json context;
  reader(context, "context");
  visit_sizes(spec, reader);
  args_from_json(object, spec.network);
  args_from_json(object, spec.ranking);
  args_from_json(object, spec.retrieval);
  for (const json& entry : context) {
    Reader feature_reader{entry};
    data::ContextFeature feature;
    feature_reader(feature.name, "name");
    feature_reader(feature.vocab_size, "vocab_size");
    spec.context.push_back(std::move(feature));
  }
  return spec;
}

}  // namespace seqfuse::training
