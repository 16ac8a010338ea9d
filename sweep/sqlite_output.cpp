// SPDX-License-Identifier: Apache-2.0
#include "sweep/sqlite_output.hpp"

#include "base/error.hpp"
#include "sweep/line_format.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace penstock {
namespace {

constexpr std::string_view kManifestTable = "sweep_manifest";

std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

const char* sql_type(const SweepColumn& column) {
  switch (column.type) {
    case SweepColumn::Type::integer: return "INTEGER PRIMARY KEY";
    case SweepColumn::Type::number: {
      const Unit unit = measure_of(column)->unit;
      return unit == Unit::count || unit == Unit::bytes ? "INTEGER" : "REAL";
    }
    case SweepColumn::Type::text: return "TEXT";
    default: return "NUMERIC";  // numbers as such, everything else as text
  }
}

class SqliteOutput : public DatabaseOutput {
 public:
  SqliteOutput(const std::string& path, const std::vector<SweepColumn>& columns,
               DatabaseAccess access)
      : path_(path), columns_(columns) {
    const bool writes = access != DatabaseAccess::read;
    // Held as long as the database is open: SQLite's own locks end with every transaction.
    if (writes) lock_.file = open_locked(path, O_RDWR);
    if (access == DatabaseAccess::create) remove_content();
    sqlite3* opened = nullptr;
    const int result = sqlite3_open_v2(
        path.c_str(), &opened,
        writes ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY, nullptr);
    database_.reset(opened);  // also when that failed: it knows why
    check(result);
    check(sqlite3_busy_timeout(opened, 10'000));
    check_ours();
    if (writes) create_tables();
    if (!columns_.empty()) check_columns();
    if (writes) begin_writing();
  }

  std::string manifest() override {
    std::string text;
    select(fmt::format("SELECT manifest FROM {}", kManifestTable),
           [&](sqlite3_stmt* row) { text = text_at(row, 0); });
    return text;
  }

  void set_manifest(const std::string& text) override {
    const Statement statement = prepare(fmt::format("INSERT INTO {} VALUES (?)", kManifestTable));
    check(sqlite3_bind_text(statement.get(), 1, text.c_str(), -1, SQLITE_TRANSIENT));
    if (sqlite3_step(statement.get()) != SQLITE_DONE) fail();
    commit();
  }

  void previous(const std::function<void(const Cells&)>& visit) override {
    while (const auto row = next_row()) visit(*row);
  }

  std::optional<Cells> next_row() override {
    if (!rows_) rows_ = prepare("SELECT * FROM sweep ORDER BY point");
    const int result = sqlite3_step(rows_.get());
    if (result != SQLITE_ROW) rows_.reset();
    if (result == SQLITE_DONE) return std::nullopt;
    if (result != SQLITE_ROW) fail();
    Cells cells;
    for (std::size_t c = 0; c < columns_.size(); ++c) cells.push_back(cell(rows_.get(), c));
    if (text_at(rows_.get(), static_cast<int>(columns_.size())) != check_of(cells))
      throw InputError(path_, fmt::format("the row of point {} was changed after it was written",
                                          cells.front()));
    return cells;
  }

  void put(const Cells& row) override {
    for (std::size_t c = 0; c < row.size(); ++c)
      bind(static_cast<int>(c) + 1, row[c], columns_[c].type);
    bind(static_cast<int>(row.size()) + 1, check_of(row), SweepColumn::Type::text);
    if (sqlite3_step(insert_.get()) != SQLITE_DONE) fail();
    check(sqlite3_reset(insert_.get()));
    pending_ = true;
    flush_if_due();
  }

  void flush_if_due() override {
    if (pending_ && Clock::now() - committed_ >= std::chrono::seconds(1)) commit();
  }

  void replace(const std::vector<Cells>& rows) override {
    for (const Cells& row : rows) put(row);  // INSERT OR REPLACE
    commit();
  }

  void flush() override { commit(); }

 private:
  using Clock = std::chrono::steady_clock;
  using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

  struct Lock {
    Lock() = default;
    ~Lock() {
      if (file >= 0) ::close(file);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    int file = -1;
  };

  /// An empty file is an empty database.
  void remove_content() {
    if (::ftruncate(lock_.file, 0) != 0) throw SystemError::from_errno("write", path_);
    for (const char* end : {"-journal", "-wal", "-shm"}) {
      std::error_code ignored;
      std::filesystem::remove(path_ + end, ignored);
    }
  }

  /// Nothing is written to somebody else's database, and nothing is run that it holds: a view may
  /// never end.
  void check_ours() {
    select("SELECT name FROM sqlite_master WHERE type IN ('view', 'trigger')",
           [&](sqlite3_stmt* row) {
             throw InputError(path_, fmt::format("is not the output of a sweep: it has the view or "
                                                 "trigger {}; --force replaces it",
                                                 text_at(row, 0)));
           });
    std::vector<std::string> tables;
    bool ours = false;
    select("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
           [&](sqlite3_stmt* row) {
             tables.push_back(text_at(row, 0));
             ours = ours || tables.back() == kManifestTable;
           });
    if (ours || tables.empty()) return;
    throw InputError(path_,
                     fmt::format("is not the output of a sweep but a database with the table{} {}; "
                                 "--force replaces it",
                                 tables.size() == 1 ? "" : "s", fmt::join(tables, ", ")));
  }

  void create_tables() {
    execute(fmt::format("CREATE TABLE IF NOT EXISTS {} (manifest TEXT)", kManifestTable));
    std::vector<std::string> parts;
    for (const SweepColumn& column : columns_)
      parts.push_back(quoted(column.name) + " " + sql_type(column));
    parts.push_back(quoted(std::string(kCheckColumn)) + " TEXT");
    execute(fmt::format("CREATE TABLE IF NOT EXISTS sweep ({})", fmt::join(parts, ", ")));
  }

  void check_columns() {
    std::vector<std::string> there, wanted;
    select("PRAGMA table_info(sweep)",
           [&](sqlite3_stmt* row) { there.push_back(text_at(row, 1)); });
    for (const SweepColumn& column : columns_) wanted.push_back(column.name);
    wanted.emplace_back(kCheckColumn);
    if (there != wanted)
      throw InputError(path_, "has other columns than this sweep; --force replaces it");
  }

  void begin_writing() {
    const std::vector<const char*> marks(columns_.size() + 1, "?");
    insert_ =
        prepare(fmt::format("INSERT OR REPLACE INTO sweep VALUES ({})", fmt::join(marks, ",")));
    execute("BEGIN");
  }

  /// Of numbers as SQLite gives them back: it writes 1.0 as 1.
  std::string check_of(Cells cells) const {
    for (std::size_t c = 0; c < cells.size(); ++c) {
      if (columns_[c].type == SweepColumn::Type::text || cells[c].empty()) continue;
      char* end = nullptr;
      const double number = std::strtod(cells[c].c_str(), &end);
      if (*end == '\0') cells[c] = number_cell(number);
    }
    return penstock::check_of(fmt::format("{}", fmt::join(cells, "\x1f")));
  }

  /// Numbers as such, since SQLite's own reading of them is not exact to the last digit.
  void bind(int at, const std::string& text, SweepColumn::Type type) {
    sqlite3_stmt* const row = insert_.get();
    if (text.empty()) {
      check(sqlite3_bind_null(row, at));
    } else if (type == SweepColumn::Type::number) {
      check(sqlite3_bind_double(row, at, std::strtod(text.c_str(), nullptr)));
    } else {
      check(sqlite3_bind_text(row, at, text.c_str(), -1, SQLITE_TRANSIENT));
    }
  }

  static std::string text_at(sqlite3_stmt* row, int at) {
    const auto* text = sqlite3_column_text(row, at);
    return text == nullptr ? "" : reinterpret_cast<const char*>(text);
  }

  std::string cell(sqlite3_stmt* row, std::size_t column) const {
    const int at = static_cast<int>(column);
    const int type = sqlite3_column_type(row, at);
    const bool number = columns_[column].type == SweepColumn::Type::number && type != SQLITE_NULL;
    if (number || type == SQLITE_FLOAT) return number_cell(sqlite3_column_double(row, at));
    return text_at(row, at);
  }

  template <class Visit>
  void select(const std::string& sql, const Visit& visit) {
    const Statement statement = prepare(sql);
    int result = 0;
    while ((result = sqlite3_step(statement.get())) == SQLITE_ROW) visit(statement.get());
    if (result != SQLITE_DONE) fail();
  }

  Statement prepare(const std::string& sql) {
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &statement, nullptr));
    return Statement(statement, sqlite3_finalize);
  }

  void execute(const std::string& sql) {
    check(sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr));
  }

  void commit() {
    committed_ = Clock::now();
    pending_ = false;
    require_same_file(lock_.file, path_);
    execute("COMMIT");
    execute("BEGIN");
  }

  void check(int result) {
    if (result != SQLITE_OK) fail();
  }

  [[noreturn]] void fail() {
    const int system = errno;  // of what SQLite calls an I/O error
    const std::string why = sqlite3_errmsg(database_.get());
    if (sqlite3_errcode(database_.get()) == SQLITE_NOTADB)
      throw InputError(path_, why + "; --force replaces it");
    // It cannot write to a database that was moved, and calls it read-only.
    if (lock_.file >= 0) require_same_file(lock_.file, path_);
    const bool of_system = sqlite3_errcode(database_.get()) == SQLITE_IOERR && system != 0;
    throw SystemError(fmt::format("cannot write '{}': {}{}", path_, why,
                                  of_system ? fmt::format(" ({})", std::strerror(system)) : ""));
  }

  std::string path_;
  std::vector<SweepColumn> columns_;
  Lock lock_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> database_{nullptr, sqlite3_close};
  Statement insert_{nullptr, sqlite3_finalize};
  Statement rows_{nullptr, sqlite3_finalize};  ///< that are being read
  Clock::time_point committed_ = Clock::now();
  bool pending_ = false;  ///< rows that are not committed
};

}  // namespace

std::unique_ptr<DatabaseOutput> open_sqlite(const std::string& path,
                                            const std::vector<SweepColumn>& columns,
                                            DatabaseAccess access) {
  return std::make_unique<SqliteOutput>(path, columns, access);
}

}  // namespace penstock
