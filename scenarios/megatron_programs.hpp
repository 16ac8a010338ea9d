// SPDX-License-Identifier: Apache-2.0
// What a job of Megatron's family trains, by the names of its programs and by flags that only
// models of another kind have.
#pragma once

#include "scenarios/import_notes.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Returns the names of Python programs in a script, its comments left out, in lower case and
/// without ".py"; before one that does not say "pretrain" stands its folder's name, if it has one.
std::vector<std::string> programs_in(std::string_view text);

/// Returns whether no program of a command is known to do something else (convert a checkpoint).
bool pretrains(const std::string& command);

/// Returns whether DeepSpeed's launcher starts a command's program.
bool is_started_by_deepspeed(std::string_view command);

/// Throws InputError, with what to do, where a job trains no model of one stack of attention
/// layers.
void refuse_other_models(const std::vector<std::string>& programs, ImportNotes& notes,
                         const std::string& origin);

/// Does it train a BERT?
bool trains_bert(const std::vector<std::string>& programs, ImportNotes& notes);

}  // namespace penstock
