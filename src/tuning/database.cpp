#include "tuning/database.h"

#include <sqlite3.h>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"

namespace seqfuse::tuning {
namespace {

constexpr int kApplication = 0x73667475;  // in the file's header, where `file` shows it
constexpr int kSchema = 1;
constexpr int kPatienceMilliseconds = 30'000;

// The columns of a setting, as in Setting.
#define SEQFUSE_SETTING_COLUMNS \
  "model, hidden, heads, inner, layers, batch, seq, mask, mask_density, dtype"
#define SEQFUSE_ORIGIN_COLUMNS "card, driver, version"

constexpr const char* kCreate =
    "CREATE TABLE measurements ("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " model TEXT NOT NULL, hidden INTEGER NOT NULL, heads INTEGER NOT NULL,"
    " inner INTEGER NOT NULL, layers INTEGER NOT NULL, batch INTEGER NOT NULL,"
    " seq INTEGER NOT NULL, mask TEXT NOT NULL, mask_density REAL NOT NULL, dtype TEXT NOT NULL,"
    " scheme INTEGER, first INTEGER, last INTEGER, config TEXT NOT NULL,"
    " milliseconds REAL, predicted REAL, status TEXT NOT NULL,"
    " card TEXT NOT NULL, driver TEXT NOT NULL, version TEXT NOT NULL, date TEXT NOT NULL"
    ") STRICT";
constexpr const char* kInsert = "INSERT INTO measurements (" SEQFUSE_SETTING_COLUMNS
                                ", scheme, first, last, config, milliseconds, predicted, "
                                "status, " SEQFUSE_ORIGIN_COLUMNS
                                ", date) "
                                "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
constexpr const char* kSelect = "SELECT " SEQFUSE_SETTING_COLUMNS
                                ", scheme, first, last, config, milliseconds, predicted, "
                                "status, " SEQFUSE_ORIGIN_COLUMNS ", date FROM measurements";
constexpr const char* kSelectSettings =
    "SELECT " SEQFUSE_SETTING_COLUMNS
    ", MIN(id) FROM measurements GROUP BY model, hidden, heads, inner, layers, batch, seq, mask, "
    "dtype ORDER BY MIN(id)";

bool is_damage(int code) {
  const int primary = code & 0xff;
  return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
}

}  // namespace

void Database::Close::operator()(sqlite3* handle) const {
  sqlite3_close(handle);
}

// A prepared statement. Parameters and columns are numbered as they come.
class Database::Statement {
 public:
  Statement(const Database& database, const std::string& sql) : database_(database) {
    const int code =
        sqlite3_prepare_v2(database.handle_.get(), sql.c_str(), -1, &statement_, nullptr);
    if (code != SQLITE_OK) database.fail("read", code);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int64_t value) { sqlite3_bind_int64(statement_, ++bound_, value); }
  void bind(double value) { sqlite3_bind_double(statement_, ++bound_, value); }
  void bind(const std::string& value) {
    sqlite3_bind_text(statement_, ++bound_, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
  }
  template <class T>
  void bind(const std::optional<T>& value) {
    if (value) {
      bind(*value);
    } else {
      sqlite3_bind_null(statement_, ++bound_);
    }
  }
  void bind(const Setting& s) {
    bind(s.model);
    for (const int64_t size : {s.hidden, s.heads, s.inner, s.layers, s.batch, s.seq}) bind(size);
    bind(s.mask);
  }
  void bind(const Origin& origin) {
    for (const std::string& text : {origin.card, origin.driver, origin.version}) bind(text);
  }

  // The next row; false: there is none.
  bool step(const char* doing) {
    const int code = sqlite3_step(statement_);
    if (code != SQLITE_ROW && code != SQLITE_DONE) database_.fail(doing, code);
    next_ = 0;
    return code == SQLITE_ROW;
  }

  int64_t integer() { return sqlite3_column_int64(statement_, next_++); }
  double real() { return sqlite3_column_double(statement_, next_++); }
  std::string text() {
    const auto* begin = reinterpret_cast<const char*>(sqlite3_column_text(statement_, next_));
    const int bytes = sqlite3_column_bytes(statement_, next_++);
    return begin == nullptr ? "" : std::string(begin, static_cast<size_t>(bytes));
  }
  bool skip_null() {
    if (sqlite3_column_type(statement_, next_) != SQLITE_NULL) return false;
    ++next_;
    return true;
  }
  std::optional<double> optional_real() {
    return skip_null() ? std::nullopt : std::optional(real());
  }
  Setting setting() {
    Setting s;
    s.model = text();
    for (int64_t* size : {&s.hidden, &s.heads, &s.inner, &s.layers, &s.batch, &s.seq})
      *size = integer();
    s.mask = text();
    s.mask_density = real();
    s.dtype = text();
    return s;
  }
  Origin origin() {
    Origin origin;
    for (std::string* part : {&origin.card, &origin.driver, &origin.version}) *part = text();
    return origin;
  }

 private:
  const Database& database_;
  sqlite3_stmt* statement_ = nullptr;
  int bound_ = 0, next_ = 0;
};

void Database::fail(const char* doing, int code) const {
  const std::string why = handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(code);
  if (is_damage(code)) {
    throw_error<DataError>(
        "{}: damaged, or no database of measurements: {}\n  move it away; `seqfuse tune` starts a "
        "new one",
        file_.string(), why);
  }
  if ((code & 0xff) == SQLITE_CANTOPEN) {
    throw_error<IoError>(
        "{}: cannot open it, or the files {}-wal and {}-shm beside it: {}; expected a folder that "
        "can "
        "be written",
        file_.string(), file_.filename().string(), file_.filename().string(), why);
  }
  if ((code & 0xff) == SQLITE_BUSY) {
    throw_error<IoError>("{}: cannot {} it: another process has had it locked for {} s",
                         file_.string(), doing, kPatienceMilliseconds / 1000);
  }
  throw_error<IoError>("{}: cannot {} it: {}", file_.string(), doing, why);
}

void Database::execute(const char* sql) const {
  const int code = sqlite3_exec(handle_.get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail("write", code);
}

Database::Database(const std::filesystem::path& file, Access access) : file_(file) {
  const bool write = access == Access::write;
  std::error_code ignored;
  SEQFUSE_CHECK_AS(DataError, write || std::filesystem::exists(file, ignored),
                   "{}: there is no such file; expected a database that `seqfuse tune` wrote",
                   file.string());
  SEQFUSE_CHECK_AS(DataError, !std::filesystem::is_directory(file, ignored),
                   "{}: a folder; expected a database that `seqfuse tune` wrote", file.string());
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(
      file.c_str(), &handle,
      write ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READWRITE, nullptr);
  handle_.reset(handle);
  if (code != SQLITE_OK) fail("open", code);
  sqlite3_extended_result_codes(handle, 1);
  sqlite3_busy_timeout(handle, kPatienceMilliseconds);
  open_schema(access);
}

Database::~Database() = default;
Database::Database(Database&&) noexcept = default;
Database& Database::operator=(Database&&) noexcept = default;

int64_t Database::pragma(const char* name) const {
  Statement statement(*this, std::string("PRAGMA ") + name);
  return statement.step("read") ? statement.integer() : 0;
}

// Readers and one writer at a time do not wait for each other. Filesystems without shared memory keep
// the default journal, which is as safe. The switch does not wait for locks by itself.
void Database::use_write_ahead_log() const {
  const auto give_up =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMilliseconds);
  int code = SQLITE_BUSY;
  while (true) {
    code = sqlite3_exec(handle_.get(), "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
    if ((code & 0xff) != SQLITE_BUSY || std::chrono::steady_clock::now() > give_up) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (code != SQLITE_OK) fail("write", code);
  execute("PRAGMA synchronous = NORMAL");
}

void Database::open_schema(Access access) {
  const bool empty = pragma("schema_version") == 0;  // nothing was ever created in it
  if (access == Access::write) {
    SEQFUSE_CHECK_AS(IoError, sqlite3_db_readonly(handle_.get(), "main") == 0,
                     "{}: read-only; expected a file that can be written", file_.string());
    if (empty) {
      execute("BEGIN IMMEDIATE");
      if (pragma("schema_version") == 0) {  // else another process was first
        execute(kCreate);
        execute(fmt::format("PRAGMA application_id = {}", kApplication).c_str());
        execute(fmt::format("PRAGMA user_version = {}", kSchema).c_str());
      }
      execute("COMMIT");
    }
  }
  SEQFUSE_CHECK_AS(
      DataError, pragma("application_id") == kApplication,
      "{}: an SQLite file, but no database of measurements; expected one that `seqfuse "
      "tune` wrote",
      file_.string());
  const int64_t schema = pragma("user_version");
  SEQFUSE_CHECK_AS(DataError, schema == kSchema,
                   "{}: a database of format {}; this version reads format {}: use the newer "
                   "seqfuse that wrote it",
                   file_.string(), schema, kSchema);
  if (access == Access::write) use_write_ahead_log();
  Statement check(*this, "PRAGMA quick_check(1)");
  const std::string found = check.step("read") ? check.text() : "nothing";
  SEQFUSE_CHECK_AS(DataError, found == "ok",
                   "{}: damaged: {}\n  move it away; `seqfuse tune` starts a new one",
                   file_.string(), found);
}

void Database::insert(const Measurement& m) const {
  Statement statement(*this, kInsert);
  statement.bind(m.setting);
  statement.bind(m.setting.mask_density);
  statement.bind(m.setting.dtype);
  statement.bind(m.scheme);
  const auto end = [&](int fusion::Segment::*which) {
    return m.segment ? std::optional<int64_t>((*m.segment).*which) : std::nullopt;
  };
  statement.bind(end(&fusion::Segment::first));
  statement.bind(end(&fusion::Segment::last));
  statement.bind(m.config);
  statement.bind(m.milliseconds);
  statement.bind(m.predicted);
  statement.bind(std::string(name_of(m.status)));
  statement.bind(m.origin);
  statement.bind(m.date);
  statement.step("write");
}

void Database::add(const Measurement& measurement) {
  check(measurement);
  insert(measurement);
}

void Database::add(const std::vector<Measurement>& measurements) {
  for (const Measurement& measurement : measurements) check(measurement);
  execute("BEGIN IMMEDIATE");
  try {
    for (const Measurement& measurement : measurements) insert(measurement);
    execute("COMMIT");
  } catch (...) {
    sqlite3_exec(handle_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
    throw;
  }
}

std::vector<Measurement> Database::measurements(const Filter& filter) const {
  std::string where;
  const auto demand = [&](const char* condition) {
    where += (where.empty() ? " WHERE " : " AND ") + std::string(condition);
  };
  if (filter.kind == Filter::Kind::schemes) demand("scheme IS NOT NULL");
  if (filter.kind == Filter::Kind::segments) demand("first IS NOT NULL");
  if (filter.setting) {
    demand(
        "model = ? AND hidden = ? AND heads = ? AND inner = ? AND layers = ? AND batch = ? AND "
        "seq = ? AND mask = ? AND dtype = ?");
  }
  if (filter.origin) demand("card = ? AND driver = ? AND version = ?");
  if (filter.status) demand("status = ?");
  Statement statement(*this, kSelect + where + " ORDER BY id");
  if (filter.setting) {
    statement.bind(*filter.setting);
    statement.bind(filter.setting->dtype);
  }
  if (filter.origin) statement.bind(*filter.origin);
  if (filter.status) statement.bind(std::string(name_of(*filter.status)));

  std::vector<Measurement> result;
  while (statement.step("read")) {
    Measurement m;
    m.setting = statement.setting();
    if (!statement.skip_null()) m.scheme = statement.integer();
    if (const bool none = statement.skip_null() && statement.skip_null(); !none) {
      const auto first = static_cast<int>(statement.integer());
      m.segment = {first, static_cast<int>(statement.integer())};
    }
    m.config = statement.text();
    m.milliseconds = statement.optional_real();
    m.predicted = statement.optional_real();
    const std::string status = statement.text();
    m.origin = statement.origin();
    m.date = statement.text();
    const auto known = status_of_name(status);
    SEQFUSE_CHECK_AS(DataError, known.has_value(),
                     "{}: a measurement has status '{}'; expected ok, wrong, failed or timeout",
                     file_.string(), status);
    m.status = *known;
    check_read(m);
    result.push_back(std::move(m));
  }
  return result;
}

std::vector<Setting> Database::settings() const {
  Statement statement(*this, kSelectSettings);
  std::vector<Setting> result;
  while (statement.step("read")) result.push_back(statement.setting());
  return result;
}

int64_t Database::count() const {
  Statement statement(*this, "SELECT COUNT(*) FROM measurements");
  statement.step("read");
  return statement.integer();
}

// Other programs can write to the file too.
void Database::check_read(const Measurement& measurement) const {
  try {
    check(measurement);
  } catch (const Error& error) {
    throw_error<DataError>("{}: {}", file_.string(), error.what());
  }
}

}  // namespace seqfuse::tuning
