#include "sweep/sqlite_output.hpp"

#include "base/error.hpp"

#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <utility>

namespace penstock {
namespace {

std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (const char c : name) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

const char* sql_type(SweepColumn::Type type) {
  switch (type) {
    case SweepColumn::Type::integer: return "INTEGER PRIMARY KEY";
    case SweepColumn::Type::text: return "TEXT";
    default: return "NUMERIC";  // numbers as such, everything else as text
  }
}

class SqliteOutput : public DatabaseOutput {
 public:
  SqliteOutput(const std::string& path, const std::vector<SweepColumn>& columns, bool resume)
      : path_(path), columns_(columns) {
    if (!resume) remove_files();
    sqlite3* opened = nullptr;
    const int result = sqlite3_open(path.c_str(), &opened);
    database_.reset(opened);  // also when that failed: it knows why
    check(result);
    check(sqlite3_busy_timeout(opened, 10'000));
    execute("CREATE TABLE IF NOT EXISTS sweep_manifest (manifest TEXT)");
    create_table();
    check_columns();
    prepare_insert();
    execute("BEGIN");
  }

  std::string manifest() override {
    std::string text;
    select("SELECT manifest FROM sweep_manifest",
           [&](sqlite3_stmt* row) { text = text_at(row, 0); });
    return text;
  }

  void set_manifest(const std::string& text) override {
    const Statement statement = prepare("INSERT INTO sweep_manifest VALUES (?)");
    check(sqlite3_bind_text(statement.get(), 1, text.c_str(), -1, SQLITE_TRANSIENT));
    if (sqlite3_step(statement.get()) != SQLITE_DONE) fail();
    commit();
  }

  void previous(const std::function<void(const Cells&)>& visit) override {
    select("SELECT * FROM sweep ORDER BY point", [&](sqlite3_stmt* row) {
      Cells cells;
      for (std::size_t c = 0; c < columns_.size(); ++c) cells.push_back(cell(row, c));
      visit(cells);
    });
  }

  void put(const Cells& row) override {
    for (std::size_t c = 0; c < row.size(); ++c)
      bind(static_cast<int>(c) + 1, row[c], columns_[c].type);
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

  void remove_files() {
    for (const char* end : {"", "-journal", "-wal", "-shm"}) {
      std::error_code ignored;
      std::filesystem::remove(path_ + end, ignored);
    }
  }

  void create_table() {
    std::vector<std::string> parts;
    for (const SweepColumn& column : columns_)
      parts.push_back(quoted(column.name) + " " + sql_type(column.type));
    execute(fmt::format("CREATE TABLE IF NOT EXISTS sweep ({})", fmt::join(parts, ", ")));
  }

  void check_columns() {
    std::vector<std::string> there, wanted;
    select("PRAGMA table_info(sweep)",
           [&](sqlite3_stmt* row) { there.push_back(text_at(row, 1)); });
    for (const SweepColumn& column : columns_) wanted.push_back(column.name);
    if (there != wanted)
      throw InputError(path_, "has other columns than this sweep; --force replaces it");
  }

  void prepare_insert() {
    const std::vector<const char*> marks(columns_.size(), "?");
    insert_ =
        prepare(fmt::format("INSERT OR REPLACE INTO sweep VALUES ({})", fmt::join(marks, ",")));
  }

  /// Numbers as such, since SQLite's own reading of them is not exact to the last digit.
  void bind(int at, const std::string& text, SweepColumn::Type type) {
    sqlite3_stmt* const row = insert_.get();
    if (type == SweepColumn::Type::number) {
      check(text.empty() ? sqlite3_bind_null(row, at)
                         : sqlite3_bind_double(row, at, std::strtod(text.c_str(), nullptr)));
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
    execute("COMMIT");
    execute("BEGIN");
  }

  void check(int result) {
    if (result != SQLITE_OK) fail();
  }

  [[noreturn]] void fail() {
    const std::string why = sqlite3_errmsg(database_.get());
    if (sqlite3_errcode(database_.get()) == SQLITE_NOTADB)
      throw InputError(path_, why + "; --force replaces it");
    throw SystemError(fmt::format("cannot write '{}': {}", path_, why));
  }

  std::string path_;
  std::vector<SweepColumn> columns_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> database_{nullptr, sqlite3_close};
  Statement insert_{nullptr, sqlite3_finalize};
  Clock::time_point committed_ = Clock::now();
  bool pending_ = false;  ///< rows that are not committed
};

}  // namespace

std::unique_ptr<DatabaseOutput> open_sqlite(const std::string& path,
                                            const std::vector<SweepColumn>& columns, bool resume) {
  return std::make_unique<SqliteOutput>(path, columns, resume);
}

}  // namespace penstock
