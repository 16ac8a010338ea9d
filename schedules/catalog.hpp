// The rows of the table of schedules: one function for each, defined in catalog/. Where two
// schedules are variants of one idea they share a file.
#pragma once

#include "schedules/generator.hpp"

namespace penstock {

Schedule model_parallel();
Schedule gpipe();
Schedule gpipe_fifo();
Schedule one_f_one_b();
Schedule dapple_pb();
Schedule pipedream();
Schedule pipedream_2bw();
Schedule zb_h1();
Schedule zb_h2();
Schedule zb();
Schedule zb_1p();
Schedule zb_2p();
Schedule data_parallel();
Schedule asp();

/// For data parallelism: the whole model is one stage.
Refusal refuse_stages(const ScheduleShape& shape);

}  // namespace penstock
