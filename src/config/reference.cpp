#include "config/reference.h"

#include <fmt/format.h>

#include <string>

#include "config/registry.h"

namespace seqfuse::config {
namespace {

constexpr const char* kIntroduction = R"(# Configuration

<!-- Written by `config_reference()`: edit src/config/args.h and src/config/reference.cpp. -->

A gin file configures a run. Each line sets one parameter of one class; the last line for a
parameter wins. An unknown name, a wrong type or a value out of range is an error with file, line,
column and the nearest known name. Every run saves all values in force as `operative_config.gin`,
which is itself a gin file.

```python
include 'base.gin'                     # next to this file, or in the working directory
WIDTH = 128                            # a macro, used as %WIDTH
NetworkArgs.hidden_size = %WIDTH
trainer.TrainerArgs.seed = 7           # module prefixes are ignored
DatasetArgs.dataset_name = 'ml-1m'     # strings need quotes
RankingArgs.prediction_head_arch = [
    512, 8,                            # brackets may span lines; a backslash continues others
]
item/EmbeddingArgs.table_name = 'item' # one scope per table
OptimizerArgs:                         # a block: OptimizerArgs.learning_rate = 1e-3
    learning_rate = 1e-3
large/WIDTH = 1024                     # a scoped macro, used as %large/WIDTH
```

Values are numbers, `'strings'`, `True`, `False`, `None`, `[lists]`, `(tuples,)`, `{'dicts': 1}`,
macros (`%NAME`) and instances of scoped classes (`@scope/Class()`). `import` lines are accepted and
have no effect. On the command line, `--gin "NetworkArgs.num_layers=4"` acts like a last line of the
file.
)";

std::string table_cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string config_reference() {
  std::string text = kIntroduction;
  for (const ClassInfo& info : classes()) {
    text += fmt::format(
        "\n## {}\n\n{}\n\n| parameter | type | default | meaning |\n|---|---|---|---|\n", info.name,
        info.summary);
    for (const ParameterInfo& parameter : info.parameters) {
      const std::string default_value =
          parameter.default_value.empty()
              ? "required"
              : fmt::format("`{}`", table_cell(parameter.default_value));
      text += fmt::format("| `{}` | {} | {} | {} |\n", parameter.name, parameter.type,
                          default_value, table_cell(parameter.help));
    }
  }
  return text;
}

}  // namespace seqfuse::config
