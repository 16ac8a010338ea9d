// SPDX-License-Identifier: Apache-2.0
// The executor: runs one device's ordered ops of a Program on a backend, and keeps what happened.
// Where several ranks are one device, each has an executor: they issue the same ops, with messages
// from and to those at the same place of other devices, and exchange inside of ops.
//
// One thread walks the list and *issues*: for every op the wait for its message, its buffers, the
// arithmetic, the message it sends. Nothing here knows a backend or a time source; what waits for
// what follows from the Program (program/dependencies.hpp) and from how its transfers hold their
// ends:
//   overlapped, free  an op waits for its own message alone
//   blocking          the device goes on when its message has been delivered
//   coupled           the device goes on when the batch of its last send and its next receive is
//                     done, and posts that receive when its last compute op has ended
// Messages of a channel are received in the order they are sent, whichever stages they are for. An
// overlapped F and B start when both may, and end together.
//
// Replicas, and devices of mirrored placements, reduce their gradients by the steps of the
// scenario's algorithm (models/collective_steps.hpp), which say what leaves, what comes and in
// which order it is added; so each has the same bits. A reduction that holds its device runs on the
// compute queue. One that overlaps a backward (in parts, each when it is there) or the next batch
// (detached; backwards then add to a second buffer) runs on a queue beside it.
//
// Ranks that have other experts of a layer exchange rows of tokens inside of ops, on the compute
// queue (hw/expert_layer.hpp). How many there are is known when the router has run; the issuing
// thread waits for that.
//
// Replicas that divide a stage (hw/shards.hpp) gather weights and reduce gradients inside of its
// ops, on the queue beside, a unit while another one computes.
//
// With post-validation a step waits for the partial norm of the
// position before, and hands its own on as it starts; the message is as real as the others, but
// nothing is clipped, and so no step looks at the number in it.
#pragma once

#include "hw/backend.hpp"
#include "hw/parameter_server.hpp"
#include "hw/weights.hpp"
#include "program/dependencies.hpp"
#include "program/gradient_ends.hpp"
#include "program/norm_chain.hpp"

#include <atomic>
#include <map>
#include <optional>

namespace penstock {

/// make_stage() of hw/stages.hpp; tests put in stages that break a rule.
using StageFactory = std::function<std::unique_ptr<Stage>(
    const RunPlan&, std::uint32_t stage, int element_bytes, bool stored, int share)>;

/// Records an exchange of the ranks of a device inside of an op.
struct ExchangeRecord {
  std::string_view name;
  Collective what;
  std::int64_t bytes;
  Event begin, end;
};

/// What happened to one op: events of the run, null where there was nothing.
struct OpRecord {
  Event begin, end;
  /// Hold when the message that it waited for (another stage's, or a partial norm) left and came;
  /// of a REDUCE_GRAD, when the reduction began and ended.
  Event message_departed, message_arrived;
  std::vector<ExchangeRecord> exchanges = {};
};

/// What an executor needs, alike for all devices of a process.
struct ExecutionInput {
  const RunPlan& plan;
  const DependencyTable& table;
  const RunSettings& settings;
  RunControl& control;
  Backend& backend;
  StageFactory make_stage;
  ParameterServer* server = nullptr;  ///< of replicas that wait for no other, where it is here
};

class DeviceExecutor {
 public:
  DeviceExecutor(const ExecutionInput& input, int rank);
  ~DeviceExecutor();

  /// Does every kind of work of its ops once, on scratch memory, and waits for it. Leaves nothing
  /// behind but loaded kernels: a GPU loads one when it is first launched, and cannot while another
  /// one spins, such as a receive that NCCL has posted.
  void warm_up();
  /// Issues every op and waits for the last; throws what stopped the run.
  void run();

  int rank() const { return rank_; }
  int device() const { return number_; }
  int place() const { return place_; }  ///< among the ranks of its device
  /// How many of its ops are known to have ended. From any thread.
  std::uint32_t ops_done() const { return done_ - first_; }
  /// Of the device's ops, in the order of the list.
  const std::vector<OpRecord>& records() const { return records_; }
  const Ledger& ledger() const { return ledger_; }
  /// fp32 weights of a stage after the run, as bytes.
  std::string weights(std::uint32_t stage) const;
  /// Of all microbatches, where the last stage is here; else empty. 0 of those computed elsewhere.
  std::vector<float> losses() const;
  int versions_peak(std::uint32_t stage) const;
  /// One line: the op the device stands before, and what it waits for. From any thread.
  std::string where() const;

 private:
  struct StageState;
  struct InFlight;
  struct UnitPlace;
  /// The ops that use a channel's messages, in the order these are sent, and which of their
  /// sequences come by it.
  struct Incoming {
    std::vector<std::uint32_t> consumers;
    MessagePart part;
    std::size_t posted = 0;
  };
  /// A part of a message that several ranks send.
  struct Piece {
    Block* block;
    std::int64_t first;  // sequence
    Event departed, arrived;
  };

  void add_stage(std::uint32_t stage);
  void try_out(const StageState& s, const Stage& stage);
  void find_incoming();
  void issue_receives(std::uint32_t next);
  void issue_receives_until(std::uint32_t g);
  void issue_receive(std::uint32_t g, int channel);
  void send_message(std::uint32_t g, const Event& ready, const MessagePart& part, Block* block);
  std::int64_t own_sequences() const {
    return in_.plan.microbatch_size / replicas_of_device(in_.plan, number_);
  }
  int channel_between(int from, int to, bool backward,
                      Transfer::Kind kind = Transfer::Kind::message) const;
  int channel_of(const Op& sender) const;
  void hand_over(std::uint32_t g, Block* block, OpRecord& record);

  void issue(std::uint32_t g);
  void wait_for_inputs(std::uint32_t g);
  double lasts_s(std::uint32_t g) const;
  Event begin_of(std::uint32_t g);
  bool exchanges(const Op& op) const;
  Op reduction_of(Op op, int device) const;
  std::int64_t gradient_elements() const;
  struct Part;
  struct Reduction;
  void find_parts();
  void add_steps(const ReducedRange& range, std::vector<CollectiveStep>& own) const;
  void receive_gradients(std::uint32_t g);
  void begin_reduction(std::uint32_t g);
  template <class Is>
  void reduce_parts(std::uint32_t g, const Is& is_there);
  void reduce_part(std::uint32_t g, const Part& part);
  void send_step(std::uint32_t g, const CollectiveStep& step);
  void receive_step(Reduction& r, const CollectiveStep& step);
  void reduce_pieces(std::uint32_t g, const Stage& stage, std::size_t piece);
  void end_early_parts(std::uint32_t g, const Event& begin, double duration_s);
  void end_reduction(std::uint32_t g);
  void exchange(std::uint32_t g, const StageExchange& exchange);
  void exchange_rows(std::uint32_t g, const RowExchange& exchange);
  const ExchangeSeconds* paces_experts(std::uint32_t g) const;
  void begin_expert_pace(std::uint32_t g);
  void pace_exchange(const RowExchange& exchange);
  void end_expert_pace(std::uint32_t g);
  TokenRoutes* routes_of(InFlight& f, const StageState& s);
  std::vector<Block*> exchange_by(std::uint32_t g, const StageExchange& exchange,
                                  const std::vector<CollectiveStep>& steps, bool inside_replica);
  void use_units(std::uint32_t g, StageState& s, StageBuffers& b);
  Tensor use_weights(std::uint32_t g, StageState& s, std::size_t unit);
  void gather_unit(std::uint32_t g, StageState& s, std::size_t unit);
  void gather_whole(std::uint32_t g, const StageState& s, Tensor to);
  Tensor begin_gradients(StageState& s, std::size_t unit);
  void reduce_unit(std::uint32_t g, StageState& s, std::size_t unit);
  void exchange_unit(std::uint32_t g, UnitPlace& place, const StageExchange& exchange,
                     const std::vector<CollectiveStep>& steps);
  void wait_for_unit(UnitPlace& place);
  void end_units(std::uint32_t g, StageState& s);
  bool paces_units(std::uint32_t g) const;
  int unit_passes(const Op& op) const;
  void pace_unit(std::uint32_t g, StageState& s);
  void end_pass(std::uint32_t g, StageState& s);
  void assemble_weights();
  void sum_partial_gradients(std::uint32_t g, const StageState& s);
  int same_place_on(int device) const { return rank_at(in_.plan, device, place_); }
  template <class Visit>
  void for_each_stage(const CollectiveStep& step, Visit visit) const;
  bool takes_norm(const Op& op) const { return norms_.takes(op, number_); }
  void receive_norm(std::uint32_t g);
  void hand_norm(std::uint32_t g);
  void exchange_with_server(std::uint32_t g);
  Block* run_op(std::uint32_t g);
  Block* forward(StageState& s, InFlight& f, std::uint32_t g);
  void backward(StageState& s, InFlight& f, std::uint32_t g);
  void backward_input(const Stage& stage, InFlight& f, StageBuffers& b, std::uint32_t microbatch);
  void backward_weight(const Stage& stage, InFlight& f, StageBuffers& b, std::uint32_t microbatch);
  void account(std::uint32_t g, OpPoint at, const Event& when);
  StageBuffers buffers(const StageState& s, const InFlight& f, std::uint32_t microbatch) const;
  Block* take_arrived(std::uint32_t g);
  Block* allocate(std::int64_t bytes);
  Block* allocate_message(const Op& op, std::int64_t made);
  void release(Block*& block);
  void wait_until_done(std::uint32_t g);
  OpRecord& record(std::uint32_t g) { return records_[g - first_]; }

  bool is_last(std::uint32_t stage) const {
    return stage + 1 == static_cast<std::uint32_t>(in_.plan.program.placement.stages());
  }

  const ExecutionInput in_;
  const OpLists& ops_;
  const NormChain norms_;
  int rank_, number_, place_;  // of the run; its device, and its place among the ranks of that
  Device& device_;
  std::uint32_t first_, last_;
  Ledger ledger_;
  std::map<std::uint32_t, std::unique_ptr<StageState>> stages_;
  std::map<std::pair<std::uint16_t, std::uint32_t>, InFlight> flying_;
  std::map<std::uint32_t, Block*> arriving_;  // per op: the block of its message or local input
  std::map<std::uint32_t, std::vector<Piece>> pieces_;  // per op: where those are several
  const std::vector<int> adders_;  // whose gradients are added, this one among them
  bool beside_ = false;            // reductions do not run on the compute queue
  Device* reducing_;               // on whose compute queue they run
  Device* pacing_ = nullptr;       // on whose they take as long as stated
  std::vector<Part> parts_;        // of every reduction
  GradientEnds gradient_ends_;
  std::map<std::uint32_t, Reduction> reductions_;  // per REDUCE_GRAD that goes on
  std::uint32_t detached_ = kNoOp;                 // the one that the next STEP waits for
  std::vector<OpRecord> records_;
  std::map<int, Incoming> incoming_;  // per channel
  std::uint32_t next_receive_;
  /// How long an op with experts computes between its exchanges, on a wall clock.
  struct ExpertPace {
    Event begin;
    double others_s, experts_s;  // of each layer
    bool others_first;           // of a layer
  };
  std::optional<ExpertPace> expert_pace_;
  Event last_delivered_;  // of the last compute op's message
  Block* losses_ = nullptr;
  // For where(): how far the issuing thread has got, and how far the queue.
  std::atomic<std::uint32_t> issued_, done_;
  std::atomic<std::uint32_t> receives_issued_;
};

}  // namespace penstock
