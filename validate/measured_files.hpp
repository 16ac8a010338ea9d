// SPDX-License-Identifier: Apache-2.0
// Finds what `penstock validate` is given: a file, or the recordings and tables of measurements in
// a folder, which may hold other files, too.
#pragma once

#include "base/output_file.hpp"
#include "validate/run_rows.hpp"

namespace penstock {

struct MeasuredFile {
  std::string path;
  MeasuredFormat format;
};

/// Counts the files of a folder that were refused, and says why. A file that was named itself is an
/// error.
class LeftOut {
 public:
  explicit LeftOut(bool folder) : folder_(folder) {}

  /// Does `work` and returns true; where a folder's file is refused meanwhile, says why and returns
  /// false.
  template <class Work>
  bool unless_refused(const Work& work) {
    try {
      work();
      return true;
    } catch (const OverwrittenInput&) {
      throw;
    } catch (const InputError& error) {
      if (!folder_) throw;
      say(error.what());
    } catch (const SystemError& error) {
      if (!folder_) throw;
      say(error.what());
    }
    return false;
  }
  std::size_t count() const { return count_; }

 private:
  void say(const char* why);

  bool folder_;
  std::size_t count_ = 0;
};

/// Returns the file itself, or the recordings and tables in a folder and the folders below it,
/// sorted. `form` is RowOptions::form. Throws InputError.
std::vector<MeasuredFile> measured_files(const std::string& path, const std::string& form,
                                         LeftOut& left_out);

/// Returns the predictions of the tables among these files, which were found at `path`.
std::vector<MeasuredReport> measured_reports(const std::vector<MeasuredFile>& files,
                                             const std::string& path, const RowOptions& options,
                                             LeftOut& left_out);

/// Returns all rows of a table, of a configuration, or of all of these in a folder and below it.
/// Throws InputError.
std::vector<RunRow> rows_in(const std::string& path, const RowOptions& options);

}  // namespace penstock
