// Plans: what `seqfuse tune` found to be fastest for one model, shape, mask and card, as a JSON file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "models/bert/model.h"
#include "models/bert/scheme_program.h"

namespace seqfuse::models::bert {

struct Plan {
  int64_t hidden = 0, heads = 0, inner = 0, layers = 0;  // of the model
  std::string activation;                                // "gelu", "gelu_new" or "relu"
  int64_t batch = 0, seq = 0;                            // sequences, and tokens of each
  std::string mask;                                      // as of `--mask`; several joined by '+'
  std::string dtype;                                     // "float16", ...
  std::string card;                                      // card_of(device)
  int64_t scheme = 0;                                    // fusion::program_of(...).number()
  Choices choices;
  double milliseconds = 0, default_milliseconds = 0;  // measured: of the plan, of fused()
  std::string version, date;                          // of seqfuse, and when it was made

  bool operator==(const Plan&) const = default;
};

// Throws IoError, or DataError that names the file and what is wrong with it.
Plan load_plan(const std::filesystem::path& file);
// Atomically. Throws IoError.
void save_plan(const Plan& plan, const std::filesystem::path& file);

// The card of a device as its driver calls it, "cpu" for the CPU.
std::string card_of(at::Device device);
// "gelu", "gelu_new" or "relu", as in config.json.
const char* name_of(Activation activation);

// Why a plan is not for this model on its device: "the plan is for …, and …"; "": it is.
std::string why_not_for(const Plan& plan, const Model& model);

// A plan as a program of a model.
class PlannedProgram {
 public:
  // Throws UsageError with why_not_for().
  PlannedProgram(const Plan& plan, const Model& model);

  const Plan& plan() const { return plan_; }
  const Program& program() const { return program_.program(); }

  // Why sequences of these lengths are not what the plan is for; "": they are.
  std::string why_not_for(std::span<const int64_t> lengths) const;
  // The rows of such a batch, with the dense mask if segments read it.
  void prepare(Rows& rows, at::Device device) const;

 private:
  Plan plan_;
  SchemeProgram program_;
};

}  // namespace seqfuse::models::bert
