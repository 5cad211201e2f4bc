// Which files of an input are logs, which hold users' features or items' titles.
#pragma once

#include <string>
#include <vector>

#include "data/ingest/formats.h"
#include "data/ingest/ingest.h"
#include "data/read/input.h"

namespace seqfuse::data {

class InputRoles {
 public:
  // Both must outlive it.
  InputRoles(const DatasetFormat& format, const IngestOptions& options)
      : format_(format), options_(options) {}

  // Whether it is one of several files of a folder or archive.
  bool is_part(const InputMember& member) const {
    return member.location != options_.input.string();
  }
  bool is_log(const InputMember& member) const;
  bool is_users(const InputMember& member) const;
  bool is_titles(const InputMember& member) const;

  // names: of all files of the input. Throw DataError.
  [[noreturn]] void no_log(const std::vector<std::string>& names) const;
  [[noreturn]] void no_users(const std::vector<std::string>& names) const;
  [[noreturn]] void no_titles(const std::vector<std::string>& names) const;

 private:
  const DatasetFormat& format_;
  const IngestOptions& options_;
};

// The first few, for messages.
std::string shown_names(const std::vector<std::string>& names);

}  // namespace seqfuse::data
