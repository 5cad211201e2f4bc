// Headers whose columns say their types, as in RecBole's atomic files: "user_id:token",
// "rating:float".
#pragma once

#include <string>
#include <vector>

namespace seqfuse::data {

struct TypedHeader {
  enum class Type { token, token_seq, number, number_seq };

  // Splits "name:type". Throws DataError that names the file, the column and the types there are.
  TypedHeader(const std::vector<std::string>& header, const std::string& file);

  // Throw DataError naming file, column and type: where a column holds lists; where an id is a float.
  void check_single_value(int column) const;
  void check_id(int column) const;

  std::vector<std::string> names;
  std::vector<Type> types;

 private:
  std::string file_;
};

}  // namespace seqfuse::data
