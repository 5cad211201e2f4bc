// Measurements of fusion schemes in an SQLite file, which several processes may read and extend at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "tuning/measurement.h"

struct sqlite3;

namespace seqfuse::tuning {

// Which measurements; what is not set does not matter.
struct Filter {
  enum class Kind : int8_t { any, schemes, segments };

  Kind kind = Kind::any;
  std::optional<Setting> setting;
  std::optional<Origin> origin;
  std::optional<Status> status;
};

// Rows are only added, never changed or removed. Another process's lock is waited for, up to 30 s.
// One thread at a time. While it is open, there are files NAME-wal and NAME-shm next to it.
class Database {
 public:
  enum class Access : int8_t {
    read,   // the file must exist
    write,  // created if there is none
  };

  // Throws DataError if the file is no such database, is damaged or comes from a newer version;
  // IoError if it cannot be opened.
  Database(const std::filesystem::path& file, Access access);
  ~Database();
  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;

  const std::filesystem::path& file() const { return file_; }

  // Survives the process when it returns, though a power cut may lose the last ones. Throws Error for a measurement that check() refuses, IoError for a full
  // disk, a read-only file or a lock that was not released. Several: all or none.
  void add(const Measurement& measurement);
  void add(const std::vector<Measurement>& measurements);

  // In the order in which they were added. Throws DataError if the file is damaged.
  std::vector<Measurement> measurements(const Filter& filter = {}) const;

  // Each once, in the order of their first measurement.
  std::vector<Setting> settings() const;
  int64_t count() const;

 private:
  class Statement;
  struct Close {
    void operator()(sqlite3* handle) const;
  };

  [[noreturn]] void fail(const char* doing, int code) const;
  void execute(const char* sql) const;
  int64_t pragma(const char* name) const;
  void open_schema(Access access);
  void use_write_ahead_log() const;
  void insert(const Measurement& measurement) const;
  void check_read(const Measurement& measurement) const;

  std::filesystem::path file_;
  std::unique_ptr<sqlite3, Close> handle_;
};

}  // namespace seqfuse::tuning
