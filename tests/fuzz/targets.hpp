// SPDX-License-Identifier: Apache-2.0
// What is fuzzed: one target for every reader of the house. fuzz.cpp has the targets and runs them
// with libFuzzer; seeds.cpp gives them something to begin with.
//
// A reader accepts a text or refuses it with InputError (SystemError where it is documented to).
// Any other exception, whatever a sanitizer finds, seconds or gigabytes for a few bytes are
// defects; so is an invariant that does not hold: what was accepted and written again reads as the
// same, and a small scenario that was accepted takes a finite time and memory >= 0.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::fuzz {

struct Target {
  std::string_view name;
  /// Throws as the reader does; InternalBug where an invariant does not hold.
  void (*read)(const std::string& text);
  bool system_errors = false;  ///< SystemError is an answer, too
  /// Files of the tree, "folder/*.ending". Of C++ sources the literals: they are the dictionary,
  /// and those of tests seeds, too.
  std::vector<std::string_view> seeds{};
  std::vector<std::string> (*written)() = nullptr;  ///< more seeds, as penstock writes them
  std::vector<std::string_view> covers{};           ///< the reader's own files, for their coverage
};

std::span<const Target> targets();

/// Makes `folder` with a folder of seeds, a list of them and a dictionary for every target: NAME,
/// NAME.list, NAME.dict.
void write_seeds(const std::string& folder);

std::vector<std::string> written_programs();
std::vector<std::string> written_recordings();
std::vector<std::string> written_traces();
std::vector<std::string> written_tables();
std::vector<std::string> written_requests();
std::vector<std::string> written_results();
std::vector<std::string> written_messages();
std::vector<std::string> written_greetings();
std::vector<std::string> written_rows();
std::vector<std::string> written_manifests();
std::vector<std::string> written_databases();
std::vector<std::string> written_answers();
std::vector<std::string> written_blocks();
std::vector<std::string> written_runs();

/// A word of the ranks' protocol, as hw/host/rendezvous.cpp frames it.
std::string greeting(char kind, std::int32_t number, const std::string& first,
                     const std::string& second);

}  // namespace penstock::fuzz
