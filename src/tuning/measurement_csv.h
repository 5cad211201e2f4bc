// Measurements as a CSV file: small, readable, for records in a repository. Its header names the columns,
// in any order:
//   model,hidden,heads,inner,layers,batch,seq,mask,mask_density,dtype,scheme,first,last,config,
//   milliseconds,predicted,status,card,driver,version,date
// as `sqlite3 -header -csv tune.db "SELECT * FROM measurements"` writes it too; a column id is ignored.
// scheme, or first and last, are empty, and so are times that there are not.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "tuning/measurement.h"

namespace seqfuse::tuning {

// Atomically; times read back are the same, bit for bit. Throws IoError.
void write_csv(const std::filesystem::path& file, std::span<const Measurement> measurements);

// Throws DataError that names file and line: a missing or unknown column, a row of another length, a
// field that is no number, or what check() refuses. IoError.
std::vector<Measurement> read_csv(const std::filesystem::path& file);

// Whether text begins with such a header.
bool is_measurement_csv(std::string_view text);

}  // namespace seqfuse::tuning
