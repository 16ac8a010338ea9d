// SPDX-License-Identifier: Apache-2.0
// What `penstock validate` is given: a file, or the recordings and tables of measurements in a
// folder, which holds other files, too.
#pragma once

#include "base/output_file.hpp"
#include "validate/run_rows.hpp"

namespace penstock {

struct MeasuredFile {
  std::string path;
  MeasuredFormat format;
};

/// Files of a folder that are refused are said and left out; one that was named is an error.
class LeftOut {
 public:
  explicit LeftOut(bool folder) : folder_(folder) {}

  /// Has `work` been done?
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

/// The file itself, or the recordings and tables in a folder and those below it, sorted. `form`: as
/// RowOptions'. Throws InputError.
std::vector<MeasuredFile> measured_files(const std::string& path, const std::string& form,
                                         LeftOut& left_out);

/// Of the tables among these files of `path`, each predicted.
std::vector<MeasuredReport> measured_reports(const std::vector<MeasuredFile>& files,
                                             const std::string& path, const RowOptions& options,
                                             LeftOut& left_out);

/// All rows of a table, of a configuration, or of those in a folder and below it. Throws
/// InputError.
std::vector<RunRow> rows_in(const std::string& path, const RowOptions& options);

}  // namespace penstock
