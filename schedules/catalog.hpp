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
Schedule data_parallel();
Schedule asp();
Schedule zb_v();
Schedule zb_v_search();
Schedule v_min();
Schedule v_half();
Schedule v_zb();
Schedule v_search();
Schedule one_f_one_b_v();

/// For data parallelism: the whole model is one stage.
Refusal refuse_stages(const ScheduleShape& shape);

}  // namespace penstock
