// SPDX-License-Identifier: Apache-2.0
// The rows of the table of schedules: one function for each, defined in catalog/. Where two
// schedules are variants of one idea they share a file.
#pragma once

#include "schedules/generator.hpp"

namespace penstock {

Schedule model_parallel();
Schedule gpipe();
Schedule gpipe_fifo();
Schedule torchgpipe();
Schedule one_f_one_b();
Schedule eager_one_f_one_b();
Schedule dapple_pb();
Schedule pipedream();
Schedule pipedream_2bw();
Schedule dualpipe();
Schedule dualpipev();
Schedule chimera();
Schedule hanayo();
Schedule interleaved_1f1b();
Schedule interleaved_1f1b_torch();
Schedule looped_bfs();
Schedule interleaved_zb();
Schedule zb_h1();
Schedule zb_h2();
Schedule zb();
Schedule zb_1p();
Schedule zb_2p();
Schedule data_parallel();
Schedule asp();
Schedule zb_v();
Schedule zb_v_search();
Schedule v_min();
Schedule v_half();
Schedule v_zb();
Schedule v_search();
Schedule one_f_one_b_v();
Schedule search();
Schedule timeprest();
Schedule v_timeprest();
Schedule i_timeprest();
Schedule pipemare();

/// For schedules that are defined for as many replicas of every stage.
Refusal refuse_uneven(std::string_view schedule, const ScheduleShape& shape);

/// For schedules of two opposite pipelines: those, and an even number of devices.
Refusal refuse_bidirectional(std::string_view schedule, const ScheduleShape& shape);

/// For searches within a limit, `usual_limit` where the shape has none: every device needs room for
/// a microbatch, of its stage or of its two chunks there and back.
Refusal refuse_limit_of_line(const ScheduleShape& shape, double usual_limit);
Refusal refuse_limit_there_and_back(const ScheduleShape& shape, double usual_limit,
                                    std::string_view schedule);

/// 1F1B over all microbatches of the run, on stages of as many replicas as the shape says.
void generate_one_f_one_b_without_flush(const ScheduleShape& shape, OpLists& order);

/// For data parallelism: the whole model is one stage.
Refusal refuse_stages(const ScheduleShape& shape);

}  // namespace penstock
