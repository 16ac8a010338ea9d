// Optimizer post-validation (Qi et al., "Zero Bubble Pipeline Parallelism", ICLR'24, section 4): in
// place of an all-reduce of the gradients' norm before every step, a partial norm goes from each
// stage to the next, every device steps with what it has got, and the full norm comes back while
// the next batch warms up; a step that proves wrong is taken back.
#pragma once

#include "results/simulation.hpp"

namespace penstock {

/// The longest that a device would wait for the partial norm of the stages before it, in a run
/// whose devices step when their own gradients are there. Seconds; 0: it always comes in time.
double longest_wait_for_norm_s(const Simulation& simulation);

/// That, as a sentence.
std::string post_validation_note(const Simulation& simulation);

}  // namespace penstock
