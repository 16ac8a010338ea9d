// SPDX-License-Identifier: Apache-2.0
#include "hw/executor_state.hpp"

#include "base/error.hpp"
#include "hw/math.hpp"
#include "hw/rank_exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace penstock {

namespace {

/// Fires when both have, with the later time.
class LatestEvent : public EventState {
 public:
  LatestEvent(Event a, Event b) : a_(std::move(a)), b_(std::move(b)) {}
  double time_s() override { return std::max(a_->time_s(), b_->time_s()); }
  bool fired() override { return a_->fired() && b_->fired(); }

 private:
  Event a_, b_;
};

}  // namespace

DeviceExecutor::DeviceExecutor(const ExecutionInput& input, int rank)
    : in_(input),
      ops_(input.plan.program.ops),
      norms_(input.plan.program),
      rank_(rank),
      number_(place_of_rank(input.plan, rank).device),
      place_(place_of_rank(input.plan, rank).place),
      device_(input.backend.device(rank)),
      first_(ops_.begin(number_)),
      last_(ops_.end(number_)),
      adders_(adders_of(input.plan, number_)),
      reducing_(&device_),
      records_(last_ - first_),
      next_receive_(first_),
      issued_(first_),
      done_(first_),
      receives_issued_(first_) {
  for (const std::uint32_t stage : stages_on(input.plan, number_)) add_stage(stage);
  find_incoming();
  find_parts();
}

DeviceExecutor::~DeviceExecutor() = default;

void DeviceExecutor::add_stage(std::uint32_t number) {
  const Program& program = in_.plan.program;
  auto s = std::make_unique<StageState>();
  const int element_bytes = device_.math().element_bytes();
  s->number = number;
  StageShards shards;
  const auto make_variant = [&](bool stored) {
    auto stage =
        in_.make_stage(in_.plan, number, element_bytes, stored, share_of_rank(in_.plan, rank_));
    if (!shards) shards = StageShards(in_.plan, rank_, number, *stage);
    const auto bytes =
        accounted_bytes(in_.plan, number, stage->sizes(), element_bytes, stored, shards);
    return StageState::Variant{std::move(stage), bytes};
  };
  s->usual = make_variant(false);
  std::vector<std::int64_t> last_use(program.updates(number) + 1, -1);
  for (std::uint32_t g = first_; g < last_; ++g) {
    const Op& op = ops_[g];
    if (!is_compute(op.kind) || op.stage != number) continue;
    last_use[program.version(op)] = g - first_;
    if (op.has(Op::stored) && !s->stored.stage) s->stored = make_variant(true);
  }
  s->weights = std::make_unique<WeightStore>(in_.plan, *s->usual.stage, s->bytes(), device_,
                                             ledger_, std::move(last_use), number, shards);
  if (divides_weights(in_.plan))
    for (UnitPlace& place : s->whole_weights)
      place.block = allocate(shards.largest * element_bytes);
  if (divides_gradients(in_.plan))
    for (UnitPlace& place : s->whole_gradients) place.block = allocate(shards.largest * 4);
  if (is_last(number)) {
    const std::int64_t bytes = std::int64_t{program.microbatches()} * 4;
    losses_ = allocate(bytes);
    device_.math().zero(bytes, {losses_});
  }
  stages_[number] = std::move(s);
}

void DeviceExecutor::warm_up() {
  for (const auto& [number, s] : stages_) {
    for (const StageState::Variant* variant : {&s->usual, &s->stored}) {
      if (variant->stage) try_out(*s, *variant->stage);
    }
    s->weights->warm_up();
  }
  device_.finish();
}

/// A microbatch through a stage, forth and back; alone, whoever else shares it.
void DeviceExecutor::try_out(const StageState& s, const Stage& stage) {
  const StageSizes& sizes = stage.sizes();
  InFlight f{.input = allocate(sizes.input_bytes),
             .saved = allocate(sizes.saved_bytes),
             .saved_for_weight = allocate(sizes.saved_for_weight_bytes),
             .output = allocate(sizes.output_bytes),
             .output_gradient = allocate(sizes.output_bytes),
             .input_gradient = allocate(sizes.input_bytes),
             .kept = allocate(sizes.kept_bytes),
             .workspace =
                 allocate(std::max(sizes.forward_workspace_bytes, sizes.backward_workspace_bytes))};
  for (const Block* made : {f.input, f.output_gradient}) {
    if (made != nullptr) device_.math().zero(made->bytes, {made});
  }
  StageBuffers b = buffers(s, f, 0);
  b.exchange = [](const StageExchange&) {};
  b.routes = routes_of(f, s);
  b.exchange_rows = [this](const RowExchange& e) {  // nobody sends any
    device_.math().zero(std::ssize(e.sent) * e.row_bytes, e.to);
  };
  b.weights = s.weights->version(0);
  b.output = {f.output};
  b.output_gradient = {f.output_gradient};
  b.input_gradient = {f.input_gradient};
  stage.forward(device_.math(), b, 0);
  stage.backward_input(device_.math(), b, 0);
  stage.backward_weight(device_.math(), b, 0);
  for (Block** block : {&f.input, &f.saved, &f.saved_for_weight, &f.output, &f.output_gradient,
                        &f.input_gradient, &f.kept, &f.workspace})
    release(*block);
}

void DeviceExecutor::run() {
  issue_receives(first_);
  for (std::uint32_t g = first_; g < last_; g += ops_.together(g)) issue(g);
  if (last_ > first_) wait_until_done(last_ - 1);
  assemble_weights();
  device_.finish();
}

// --- messages ------------------------------------------------------------------------------------

void DeviceExecutor::find_incoming() {
  for (std::size_t c = 0; c < in_.plan.channels.size(); ++c) {
    const Channel& channel = in_.plan.channels[c];
    if (channel.destination != rank_ || channel.kind != Transfer::Kind::message) continue;
    const int from = place_of_rank(in_.plan, channel.source).device;
    const auto parts = message_parts(in_.plan, rank_, from);
    Incoming& incoming = incoming_[static_cast<int>(c)];
    incoming.part = *std::ranges::find(parts, channel.source, &MessagePart::peer);
    for (const Op& op : ops_.of_device(from)) {
      const bool here = op.has(Op::sends) && (op.kind != OpKind::forward) == channel.backward &&
                        in_.table.consumer_device(op) == number_;
      if (here) incoming.consumers.push_back(in_.table.consumer(op));
    }
  }
}

/// Posts what may be posted before op `next` is issued. In the order of the ops: ends of channels
/// may share a queue.
void DeviceExecutor::issue_receives(std::uint32_t next) {
  const bool coupled = in_.plan.program.transfers == Transfers::coupled;
  const auto ahead = static_cast<std::uint32_t>(device_.receive_ahead());
  while (next_receive_ < last_) {
    const Op& op = ops_[next_receive_];
    if (op.has(Op::receives) || exchanges(op) || takes_norm(op)) {
      const std::uint32_t before = ops_.previous_compute(number_, next_receive_);
      const bool posts = coupled ? before == kNoOp || before < next
                                 : next_receive_ - first_ <= next - first_ + ahead;
      if (!posts) return;
      if (exchanges(op)) {
        receive_gradients(next_receive_);
      } else if (takes_norm(op)) {
        receive_norm(next_receive_);
      } else {
        issue_receives_until(next_receive_);
      }
    }
    receives_issued_.store(++next_receive_, std::memory_order_release);
  }
}

/// The receive of the message that op `g` waits for, after those sent before it.
void DeviceExecutor::issue_receives_until(std::uint32_t g) {
  const Op& producer = ops_[in_.table.producer(ops_[g])];
  for (const MessagePart& part : message_parts(in_.plan, rank_, in_.table.device_of(producer))) {
    const int channel = channel_between(part.peer, rank_, producer.kind != OpKind::forward);
    Incoming& in = incoming_.at(channel);
    const auto posted = in.consumers.begin() + static_cast<std::ptrdiff_t>(in.posted);
    const auto at = record(g).message_arrived && part.count == own_sequences()
                        ? in.consumers.end()
                        : std::find(posted, in.consumers.end(), g);
    if (at == in.consumers.end()) continue;  // it is posted
    for (auto next = posted; next <= at; ++next) {
      ++in.posted;
      issue_receive(*next, channel);
    }
  }
}

void DeviceExecutor::issue_receive(std::uint32_t g, int channel) {
  const Op& op = ops_[g];
  const Op& producer = ops_[in_.table.producer(op)];
  const StageState& s = *stages_.at(op.stage);
  const bool forward = op.kind == OpKind::forward;
  const StageSizes& sizes = s.sizes();
  const std::int64_t microbatches = in_.plan.program.microbatches_of(producer);
  const MessagePart& part = incoming_.at(channel).part;
  const std::int64_t bytes =
      payload_bytes(in_.plan, in_.settings.clock == Clock::virtual_clock, producer,
                    microbatches * (forward ? sizes.input_bytes : sizes.output_bytes)) *
      part.count / own_sequences();
  ReceivingEnd& end = in_.backend.receiving(channel);
  const std::uint32_t before = ops_.previous_compute(number_, g);
  const bool coupled = in_.plan.program.transfers == Transfers::coupled;
  const Event posted = coupled && before != kNoOp ? record(before).end : nullptr;
  Block* block = device_.allocate(end.queue(), bytes);
  const auto received = end.receive(posted, block, bytes, producer);
  OpRecord& r = record(g);
  if (part.count < own_sequences()) {
    pieces_[g].push_back({block, part.first, received.departed, received.arrived});
    if (r.message_arrived) {
      r.message_arrived = std::make_shared<LatestEvent>(r.message_arrived, received.arrived);
      return;
    }
  } else {
    arriving_[g] = block;
  }
  r.message_departed = received.departed;
  r.message_arrived = received.arrived;
  account(g, OpPoint::departure, received.departed);
}

int DeviceExecutor::channel_of(const Op& sender) const {
  const int from = in_.table.device_of(sender);
  return channel_between(message_parts(in_.plan, rank_, from).front().peer, rank_,
                         sender.kind != OpKind::forward);
}

int DeviceExecutor::channel_between(int from, int to, bool backward, Transfer::Kind kind) const {
  return penstock::channel_between(in_.plan, from, to, backward, kind);
}

/// What `g` made leaves for another device, or goes to another stage of this one.
void DeviceExecutor::hand_over(std::uint32_t g, Block* block, OpRecord& r) {
  const Op& op = ops_[g];
  if (!op.has(Op::sends)) {
    arriving_[in_.table.consumer(op)] = block;
    return;
  }
  const auto parts = message_parts(in_.plan, rank_, in_.table.consumer_device(op));
  if (parts.front().count == own_sequences()) {
    send_message(g, r.end, parts.front(), block);
  } else {
    const std::int64_t sequence_bytes = block->bytes / own_sequences();
    for (const MessagePart& part : parts) {
      Block* piece = allocate(part.count * sequence_bytes);
      device_.math().copy(piece->bytes, {block, part.first * sequence_bytes}, {piece});
      send_message(g, device_.record(kComputeQueue), part, piece);
    }
    release(block);
  }
  account(g, OpPoint::arrival, last_delivered_);
  if (in_.plan.program.transfers == Transfers::blocking)
    device_.wait(kComputeQueue, last_delivered_);
}

/// The last message of an op has been delivered when all parts of it have.
void DeviceExecutor::send_message(std::uint32_t g, const Event& ready, const MessagePart& part,
                                  Block* block) {
  const bool backward = ops_[g].kind != OpKind::forward;
  SendingEnd& end = in_.backend.sending(channel_between(rank_, part.peer, backward));
  const auto sent = end.send(ready, block, block->bytes, ops_[g]);
  device_.release(end.queue(), block);
  last_delivered_ = part.first == 0
                        ? sent.delivered
                        : std::make_shared<LatestEvent>(last_delivered_, sent.delivered);
}

// --- one op --------------------------------------------------------------------------------------

/// Op g and what runs together with it.
void DeviceExecutor::issue(std::uint32_t g) {
  const std::uint32_t next = g + ops_.together(g);
  for (std::uint32_t i = g; i < next; ++i) wait_for_inputs(i);
  const Event begin = begin_of(g);
  hand_norm(g);
  std::array<Block*, 2> made{};
  for (std::uint32_t i = g; i < next; ++i) {
    record(i).begin = begin;
    account(i, OpPoint::start, begin);
    made[i - g] = run_op(i);
  }
  for (std::uint32_t i = g; i < next; ++i) end_early_parts(i, begin, lasts_s(g));
  if (in_.settings.pace && !(beside_ && exchanges(ops_[g])) && !paces_units(g) && !paces_experts(g))
    device_.pace(kComputeQueue, begin, lasts_s(g));
  const Event end = device_.record(kComputeQueue);
  for (std::uint32_t i = g; i < next; ++i) {
    record(i).end = end;
    account(i, OpPoint::end, end);
    if (exchanges(ops_[i]) && !beside_) {
      record(i).message_departed = begin;
      record(i).message_arrived = end;
    }
    if (Block* block = made[i - g]) hand_over(i, block, record(i));
  }
  issued_.store(next, std::memory_order_release);
  issue_receives(next);
  const auto ahead = static_cast<std::uint32_t>(device_.issue_ahead());
  if (next - 1 - first_ >= ahead) wait_until_done(next - 1 - ahead);
}

/// Returns the seconds that an op is stated to last, with what is exchanged inside of it.
double DeviceExecutor::lasts_s(std::uint32_t g) const {
  return duration_s(in_.plan, g) + exchange_s(in_.plan, number_, g);
}

/// Messages, what holds the device until its last one has been delivered, and others' gradients.
void DeviceExecutor::wait_for_inputs(std::uint32_t g) {
  const Op& op = ops_[g];
  if (in_.plan.program.transfers == Transfers::coupled && last_delivered_)
    device_.wait(kComputeQueue, last_delivered_);
  if (is_compute(op.kind)) last_delivered_ = nullptr;
  if (op.kind == OpKind::step && detached_ != kNoOp) end_reduction(std::exchange(detached_, kNoOp));
  if (exchanges(op)) {
    begin_reduction(g);
  } else if (record(g).message_arrived) {
    device_.wait(kComputeQueue, record(g).message_arrived);
  }
}

/// Issues the begin of an op, which has waited for what it needs. A reduction that holds the
/// compute queue begins with its first message.
Event DeviceExecutor::begin_of(std::uint32_t g) {
  if (exchanges(ops_[g]) && !beside_) return reductions_.at(g).met;
  return device_.record(kComputeQueue);
}

// --- inside of ops -------------------------------------------------------------------------------

/// Issues this rank's part of an exchange with the ranks of its replica, on the compute queue.
void DeviceExecutor::exchange(std::uint32_t g, const StageExchange& e) {
  for (Block* block : exchange_by(g, e, exchange_steps(in_.plan, rank_, e.what, e.elements), true))
    device_.release(kComputeQueue, block);
}

/// Issues this rank's steps of an exchange: on the compute queue or, with other replicas, on the
/// one beside it. Returns the blocks that came, which can be released when it has ended.
std::vector<Block*> DeviceExecutor::exchange_by(std::uint32_t g, const StageExchange& e,
                                                const std::vector<CollectiveStep>& steps,
                                                bool inside_replica) {
  constexpr auto kKind = Transfer::Kind::reduction;
  Device& on = inside_replica ? device_ : in_.backend.beside(rank_);
  Math& math = on.math();
  const std::int64_t bytes = exchanged_bytes(e, math);
  // Where ranks of a replica reduce gradients, too, these have a channel of their own.
  const bool of_ops = !inside_replica || has_experts_apart(in_.plan);
  std::vector<Block*> received;
  ExchangeRecord happened{e.name, e.what, e.elements * bytes, on.record(kComputeQueue), {}};
  for (const CollectiveStep& step : steps) {
    if (step.gpu != rank_) continue;
    const std::int64_t n = (step.end - step.first) * bytes;
    if (step.kind == CollectiveStep::Kind::send) {
      SendingEnd& end = in_.backend.sending(channel_between(rank_, step.peer, of_ops, kKind));
      Block* block = device_.allocate(inside_replica ? kComputeQueue : end.queue(), n);
      if (!inside_replica) on.wait(kComputeQueue, device_.record(end.queue()));
      math.copy(n, e.data.at(step.first * bytes), {block});
      end.send(on.record(kComputeQueue), block, n, ops_[g]);
      device_.release(end.queue(), block);
    } else {
      ReceivingEnd& end = in_.backend.receiving(channel_between(step.peer, rank_, of_ops, kKind));
      received.push_back(device_.allocate(end.queue(), n));
      const int from = place_of_rank(in_.plan, step.peer).device;
      const Op op = from == number_ ? ops_[g] : reduction_of(ops_[g], from);
      on.wait(kComputeQueue, end.receive(nullptr, received.back(), n, op).arrived);
      take_step(math, e, step, {received.back()});
    }
  }
  happened.end = on.record(kComputeQueue);
  record(g).exchanges.push_back(std::move(happened));
  return received;
}

/// Before a step: gradients of which each rank has the sum over its rows are added over the ranks.
void DeviceExecutor::sum_partial_gradients(std::uint32_t g, const StageState& s) {
  for (const auto& [first, end] : s.usual.stage->partial_pieces()) {
    exchange(g, {"norms' gradients", Collective::all_reduce, s.weights->summed().at(first * 4),
                 end - first, StageExchange::Numbers::fp32});
  }
}

void DeviceExecutor::receive_norm(std::uint32_t g) {
  const int from = in_.plan.program.placement.norm_from(number_);
  ReceivingEnd& end = in_.backend.receiving(
      channel_between(same_place_on(from), rank_, false, Transfer::Kind::norm));
  Block* block = device_.allocate(end.queue(), kNormBytes);
  const auto received =
      end.receive(nullptr, block, kNormBytes, ops_[norms_.giver(ops_[g], number_)]);
  record(g).message_departed = received.departed;
  record(g).message_arrived = received.arrived;
  arriving_[g] = block;
}

/// A STEP starts: what came to it goes on to those that wait for it.
void DeviceExecutor::hand_norm(std::uint32_t g) {
  Block* taken = takes_norm(ops_[g]) ? take_arrived(g) : nullptr;
  norms_.for_each_taker(ops_[g], number_, [&](std::uint32_t, int taker) {
    Block* block = allocate(kNormBytes);
    if (taken != nullptr) {
      device_.math().copy(kNormBytes, {taken}, {block});
    } else {
      device_.math().zero(kNormBytes, {block});
    }
    SendingEnd& end = in_.backend.sending(
        channel_between(rank_, same_place_on(taker), false, Transfer::Kind::norm));
    end.send(device_.record(kComputeQueue), block, kNormBytes, ops_[g]);
    device_.release(end.queue(), block);
  });
  release(taken);
}

/// By messages where it is another process's.
void DeviceExecutor::exchange_with_server(std::uint32_t g) {
  WeightStore& own = *stages_.at(0)->weights;
  const auto replica = in_.plan.program.placement.replica_of(number_);
  if (in_.server != nullptr)
    return in_.server->exchange(static_cast<std::uint32_t>(replica), g - first_, own, device_);
  constexpr auto kKind = Transfer::Kind::reduction;
  const std::int64_t bytes = gradient_elements() * 4;
  Block* gradient = allocate(bytes);
  device_.math().copy(bytes, own.gradients(), {gradient});
  device_.math().zero(bytes, own.gradients());
  SendingEnd& to = in_.backend.sending(channel_between(number_, 0, false, kKind));
  to.send(device_.record(kComputeQueue), gradient, bytes, ops_[g]);
  device_.release(to.queue(), gradient);
  ReceivingEnd& from = in_.backend.receiving(channel_between(0, number_, false, kKind));
  Block* weights = device_.allocate(from.queue(), bytes);
  device_.wait(kComputeQueue, from.receive(nullptr, weights, bytes, ops_[g]).arrived);
  own.take_weights(g - first_, {weights});
  release(weights);
}

/// Issues the op's work; returns the block to hand over when it has ended, or null.
Block* DeviceExecutor::run_op(std::uint32_t g) {
  const Op& op = ops_[g];
  if (op.kind == OpKind::step && waits_for_no_other(in_.plan)) {
    exchange_with_server(g);
    return nullptr;
  }
  if (op.kind == OpKind::step) {
    for (auto& [number, s] : stages_) {
      sum_partial_gradients(g, *s);
      s->weights->step(g - first_);
    }
    return nullptr;
  }
  if (op.kind == OpKind::reduce_grad) {
    if (!exchanges(op)) return nullptr;
    if (beside_) {
      record(g).message_departed = reductions_.at(g).start;
      record(g).message_arrived = reductions_.at(g).end;
    }
    if (!op.has(Op::detached)) end_reduction(g);
    return nullptr;
  }
  StageState& s = *stages_.at(op.stage);
  InFlight& f = flying_[{op.stage, op.microbatch}];
  if (op.kind == OpKind::forward) return forward(s, f, g);
  backward(s, f, g);
  // The gradient leaves after the op that the schedule says: I or B, or only W. To another stage of
  // this device it goes at once, as the dependencies say.
  const bool here = op.stage > 0 && in_.table.consumer_device(op) == number_;
  const bool leaves = here ? is_backward(op.kind) : op.stage > 0 && op.has(Op::sends);
  Block* made = leaves ? std::exchange(f.input_gradient, nullptr) : nullptr;
  if (op.kind == OpKind::backward_input) return made;
  const std::uint32_t width = in_.plan.program.placement.width_of(op.stage);
  for (std::uint32_t i = 0; i < in_.plan.program.microbatches_of(op); ++i)
    flying_.erase({op.stage, op.microbatch - i * width});
  return made;
}

/// What an op takes and gives back at a point of it that `when` is.
void DeviceExecutor::account(std::uint32_t g, OpPoint at, const Event& when) {
  const Op& op = ops_[g];
  ledger_.at_op(g);
  if (!is_compute(op.kind)) return;
  for_each_holding(op, stages_.at(op.stage)->variant(op).bytes,
                   in_.plan.program.microbatches_of(op),
                   [&](OpPoint point, Owner owner, std::int64_t bytes) {
                     if (point == at && bytes != 0) ledger_.add_bytes(owner, bytes, when);
                   });
}

Block* DeviceExecutor::forward(StageState& s, InFlight& f, std::uint32_t g) {
  const Op& op = ops_[g];
  const auto& stage = s.variant(op).stage;
  const StageSizes& sizes = stage->sizes();
  if (op.stage > 0) f.input = take_arrived(g);
  f.saved = allocate(sizes.saved_bytes);
  f.saved_for_weight = allocate(sizes.saved_for_weight_bytes);
  f.workspace = allocate(sizes.forward_workspace_bytes);
  f.output = allocate_message(op, sizes.output_bytes);
  StageBuffers b = buffers(s, f, op.microbatch);
  b.routes = routes_of(f, s);
  b.exchange = [this, g](const StageExchange& e) { exchange(g, e); };
  b.exchange_rows = [this, g](const RowExchange& e) { exchange_rows(g, e); };
  b.weights = s.weights->version(in_.plan.program.version(op));
  b.output = {f.output};
  use_units(g, s, b);
  begin_expert_pace(g);
  stage->forward(device_.math(), b, op.microbatch);
  end_expert_pace(g);
  end_units(g, s);
  release(f.workspace);
  return std::exchange(f.output, nullptr);
}

/// I, W, or B, which is both: of one microbatch, or, one after the other, of all of an update,
/// whose gradients travel in one message.
void DeviceExecutor::backward(StageState& s, InFlight& f, std::uint32_t g) {
  const Op& op = ops_[g];
  const Program& program = in_.plan.program;
  const auto& stage = s.variant(op).stage;
  const StageSizes& sizes = stage->sizes();
  const std::uint32_t count = program.microbatches_of(op);
  const bool input = is_backward(op.kind);
  Tensor weights;
  begin_expert_pace(g);
  if (input) {
    weights = s.weights->for_backward(program.version(op));
    if (!is_last(op.stage)) f.output_gradient = take_arrived(g);
    f.input_gradient = allocate_message(op, sizes.input_bytes * count);
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t k = op.microbatch - (count - 1 - i) * program.placement.width_of(op.stage);
    InFlight& one = flying_.at({op.stage, k});
    StageBuffers b = buffers(s, one, k);
    b.routes = routes_of(one, s);
    b.exchange = [this, g](const StageExchange& e) { exchange(g, e); };
    b.exchange_rows = [this, g](const RowExchange& e) { exchange_rows(g, e); };
    b.weights = weights;
    use_units(g, s, b);
    if (f.output_gradient != nullptr)
      b.output_gradient = {f.output_gradient, i * sizes.output_bytes};
    if (f.input_gradient != nullptr) b.input_gradient = {f.input_gradient, i * sizes.input_bytes};
    if (input) backward_input(*stage, one, b, k);
    if (op.kind == OpKind::backward_input) continue;
    if (i + 1 == count && !in_.settings.pace && gradient_ends_.reduced_by(g) != kNoOp)
      b.piece_done = [this, g, &stage](std::size_t piece) { reduce_pieces(g, *stage, piece); };
    backward_weight(*stage, one, b, k);
  }
  if (input) release(f.output_gradient);
  end_expert_pace(g);
  end_units(g, s);
}

void DeviceExecutor::backward_input(const Stage& stage, InFlight& f, StageBuffers& b,
                                    std::uint32_t k) {
  const StageSizes& sizes = stage.sizes();
  f.kept = allocate(sizes.kept_bytes);
  f.workspace = allocate(sizes.backward_workspace_bytes);
  b.kept = {f.kept};
  b.workspace = {f.workspace};
  stage.backward_input(device_.math(), b, k);
  for (Block** block : {&f.workspace, &f.saved}) release(*block);
  if (!sizes.weight_needs_input) release(f.input);
}

void DeviceExecutor::backward_weight(const Stage& stage, InFlight& f, StageBuffers& b,
                                     std::uint32_t k) {
  f.workspace = allocate(stage.sizes().backward_workspace_bytes);
  b.workspace = {f.workspace};
  stage.backward_weight(device_.math(), b, k);
  for (Block** block : {&f.workspace, &f.saved_for_weight, &f.kept, &f.input}) release(*block);
}

/// What a microbatch keeps between its ops; weights and messages are the op's.
StageBuffers DeviceExecutor::buffers(const StageState& s, const InFlight& f,
                                     std::uint32_t microbatch) const {
  StageBuffers b{.weights = {},
                 .gradients = s.weights->gradients(),
                 .input = {f.input},
                 .output = {},
                 .saved = {f.saved},
                 .saved_for_weight = {f.saved_for_weight},
                 .output_gradient = {},
                 .input_gradient = {},
                 .kept = {f.kept},
                 .workspace = {f.workspace},
                 .loss = {}};
  if (is_last(s.number)) b.loss = {losses_, std::int64_t{microbatch} * 4};
  return b;
}

Block* DeviceExecutor::take_arrived(std::uint32_t g) {
  if (const auto several = pieces_.find(g); several != pieces_.end()) {
    std::int64_t bytes = 0;
    for (const Piece& piece : several->second) bytes += piece.block->bytes;
    Block* whole = allocate(bytes);
    for (Piece& piece : several->second) {
      device_.math().copy(piece.block->bytes, {piece.block},
                          {whole, piece.first * (bytes / own_sequences())});
      release(piece.block);
    }
    pieces_.erase(several);
    return whole;
  }
  const auto arrived = arriving_.find(g);
  invariant(arrived != arriving_.end(), "an op runs before its input was handed over");
  return arriving_.extract(arrived).mapped();
}

Block* DeviceExecutor::allocate(std::int64_t bytes) {
  return bytes > 0 ? device_.allocate(kComputeQueue, bytes) : nullptr;
}

/// Room for what `op` makes; none at the ends of the pipeline.
Block* DeviceExecutor::allocate_message(const Op& op, std::int64_t made) {
  if (made == 0) return nullptr;
  return allocate(payload_bytes(in_.plan, in_.settings.clock == Clock::virtual_clock, op, made));
}

void DeviceExecutor::release(Block*& block) {
  if (block != nullptr) device_.release(kComputeQueue, block);
  block = nullptr;
}

// --- after it ------------------------------------------------------------------------------------

void DeviceExecutor::wait_until_done(std::uint32_t g) {
  for (std::uint32_t next = done_; next <= g; done_.store(++next)) {
    record(next).end->time_s();
    in_.control.progress();
  }
}

std::string DeviceExecutor::weights(std::uint32_t stage) const {
  if (in_.server != nullptr) return in_.server->weights();
  return stages_.at(stage)->weights->newest();
}

int DeviceExecutor::versions_peak(std::uint32_t stage) const {
  return stages_.at(stage)->weights->versions_peak();
}

std::vector<float> DeviceExecutor::losses() const {
  std::vector<float> losses;
  if (losses_ == nullptr) return losses;
  losses.resize(in_.plan.program.microbatches());
  device_.download(losses.data(), {losses_}, losses_->bytes);
  return losses;
}

std::string DeviceExecutor::where() const {
  const std::uint32_t issued = issued_.load(std::memory_order_acquire);
  std::uint32_t g = done_;
  while (g < issued && records_[g - first_].end->fired()) ++g;
  const bool alone = ranks_of_device(in_.plan, number_) == 1;
  const std::string who =
      fmt::format("device {}{}", number_, alone ? "" : fmt::format(", rank {}", rank_));
  if (g == last_) return fmt::format("{}: has run its {} ops", who, last_ - first_);
  const Op& op = ops_[g];
  const std::string place =
      fmt::format("{}: at {} (op {} of {})", who, to_string(op), g - first_ + 1, last_ - first_);
  const OpRecord& r = records_[g - first_];
  if (g < issued && r.begin->fired()) return place + ", running";
  const bool posted = g < receives_issued_.load(std::memory_order_acquire);
  if (op.has(Op::receives) && posted && !r.message_arrived->fired()) {
    const Op& from = ops_[in_.table.producer(op)];
    const Channel& c = in_.plan.channels[static_cast<std::size_t>(channel_of(from))];
    return fmt::format("{}, waiting for the message of {} on the link device {} -> device {} ({})",
                       place, to_string(from), place_of_rank(in_.plan, c.source).device,
                       place_of_rank(in_.plan, c.destination).device,
                       c.backward ? "backward" : "forward");
  }
  if (g < issued && op.kind == OpKind::reduce_grad)
    return fmt::format("{}, waiting for the gradients of {} other{}", place, adders_.size() - 1,
                       adders_.size() > 2 ? "s" : "");
  if (g < issued && takes_norm(op) && !r.message_arrived->fired())
    return fmt::format("{}, waiting for the partial norm of device {}", place,
                       in_.plan.program.placement.norm_from(number_));
  return place + ", waiting for its turn";
}

}  // namespace penstock
