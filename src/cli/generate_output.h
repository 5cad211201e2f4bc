// Prints the texts of a batch for `seqfuse generate`, as tokens come.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/model_text.h"
#include "serving/decoding/generate.h"

namespace seqfuse::cli {

struct OutputForm {
  bool json = false;                // a line of JSON for each prompt, when its text has ended
  bool ids = false;                 // otherwise ids with commas between them, not text
  bool titles = false;              // otherwise "==> prompt 2 <==" before each text
  const ModelText* text = nullptr;  // null: ids only
  std::vector<std::string> stops;   // need text
};

// Prints to standard output, in the order of the prompts: the first text that has not ended as it
// grows, the others once it is their turn.
class GenerateOutput {
 public:
  // prompts: of the batch. first: the number of the first among all of the call, from 0. Both and
  // form.text must outlive this.
  GenerateOutput(OutputForm form, const std::vector<std::vector<int64_t>>& prompts, size_t first);

  bool token(int64_t row, int64_t id);  // false: a stop string has come, the text has ended
  void end(int64_t row, const serving::Generated& generated);

 private:
  struct Row {
    std::unique_ptr<TextOfIds> text;
    std::string waiting;  // to be printed when it is the row's turn
    int64_t count = 0;    // ids so far
    bool ended = false;
  };
  void show(int64_t row, const std::string& piece);
  std::string title(int64_t row) const;
  std::string json_line(int64_t row, const serving::Generated& generated) const;

  OutputForm form_;
  const std::vector<std::vector<int64_t>>& prompts_;
  size_t first_;
  std::vector<Row> rows_;
  size_t turn_ = 0;  // the row that is printed as it grows
};

}  // namespace seqfuse::cli
