// What a job of Megatron's family trains, by the names of its programs and by flags that only
// models of another kind have.
#pragma once

#include "scenarios/import_notes.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace penstock {

/// Returns the names of Python programs in a script, its comments left out, in lower case and
/// without
/// ".py".
std::vector<std::string> programs_in(std::string_view text);

/// Throws InputError, with what to do, where a job trains no model of one stack of attention
/// layers.
void refuse_other_models(const std::vector<std::string>& programs, ImportNotes& notes,
                         const std::string& origin);

/// Does it train a BERT?
bool trains_bert(const std::vector<std::string>& programs, ImportNotes& notes);

}  // namespace penstock
