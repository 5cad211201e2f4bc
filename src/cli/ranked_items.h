// Prints items with scores, best first, for `recommend` and `similar`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/dataset/vocabulary.h"
#include "serving/recommendations.h"

namespace seqfuse::cli {

// Prints a table: rank, item, a column for each score, title. scores: the names of each row's
// scores, for the head of the table.
void print_ranked_items(const data::Vocabulary& vocabulary,
                        const std::vector<serving::RankedItem>& rows,
                        const std::vector<std::string>& scores);

// An array of objects: item, title (if there is one), and each score under its name.
nlohmann::json ranked_items_json(const data::Vocabulary& vocabulary,
                                 const std::vector<serving::RankedItem>& rows);

}  // namespace seqfuse::cli
