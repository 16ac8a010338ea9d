// SPDX-License-Identifier: Apache-2.0
#include "tests/models/stage_oracle.hpp"

#include <algorithm>
#include <cmath>

namespace stage_oracle {
namespace {

/// A product of the m tokens with weights: k columns in, n out, on one rank.
struct Product {
  std::string name;
  double k, n;
  Operands of;
  bool reads_norm = false;  ///< its input is what a norm before it makes
};

struct Player {
  const Model& model;
  const Device& device;
  const Stack& stack;
  const Job& job;
  std::vector<Step> steps{};
  bool again = false;

  double t() const { return job.tensor; }
  double m() const { return job.sequences * model.tokens / job.context; }
  double q() const { return model.heads * model.head_size; }
  double kv() const { return model.kv_heads * model.head_size; }
  double e() const { return model.element_bytes; }
  double x_bytes() const { return e() * m() * model.hidden; }
  /// Megatron pads the vocabulary to a multiple of 128 t where ranks share it.
  double rows() const {
    if (job.tensor == 1) return model.vocabulary;
    return std::ceil(model.vocabulary / (128 * t())) * 128;
  }

  // Layers, in the order of F
  Product qkv() const {
    return {"qkv", model.hidden, (q() + 2 * kv()) / t(), model.projections, true};
  }
  Product projection() const { return {"projection", q() / t(), model.hidden, model.projections}; }
  Product up() const {
    const bool own_norm = !model.parallel_residual || model.norms > 1;
    return {"up", model.hidden, (model.gated ? 2 : 1) * model.columns / t(), model.mlp, own_norm};
  }
  Product down() const { return {"down", model.columns / t(), model.hidden, model.mlp}; }
  Product logits() const { return {"logits", model.hidden, rows(), model.logits}; }
  double operand(const Operands& of) const { return of.bytes > 0 ? of.bytes : e(); }
  bool narrow(const Operands& of) const { return operand(of) < e(); }

  // Seconds
  double streamed_s(double bytes) const {
    return device.streamed_bytes_per_s > 0 ? bytes / device.streamed_bytes_per_s : 0;
  }
  /// Linear in the logarithm of the hidden size, flat outside.
  double layer_efficiency() const {
    const auto& curve = device.efficiency;
    const double size = model.hidden / std::sqrt(t());
    if (curve.empty()) return 1;
    if (size <= curve.front().first) return curve.front().second;
    for (std::size_t i = 1; i < curve.size(); ++i) {
      const auto [a, low] = curve[i - 1];
      const auto [b, high] = curve[i];
      if (size <= b) return low + (high - low) * std::log(size / a) / std::log(b / a);
    }
    return curve.back().second;
  }
  double product_rate(bool head) const {
    if (!stack.apart) return device.peak_flops * layer_efficiency();
    if (e() == 4) return device.peak_flops * 0.95;  // CUDA cores (models/stack.hpp)
    const bool aligned = std::fmod(rows(), 8) == 0;
    if (head && !aligned && stack.misaligned_head > 0)
      return device.peak_flops * stack.misaligned_head;
    return device.peak_flops *
           (device.matrix_efficiency > 0 ? device.matrix_efficiency : stack.matrix_efficiency);
  }
  double attention_rate() const {
    if (!stack.apart || e() == 4) return product_rate(false);
    if (std::fmod(model.head_size, 8) != 0 && stack.misaligned_attention > 0)
      return device.peak_flops * stack.misaligned_attention;
    if (device.attention_efficiency > 0) return device.peak_flops * device.attention_efficiency;
    if (stack.attention_efficiency > 0) return device.peak_flops * stack.attention_efficiency;
    return product_rate(false);
  }

  void add_compute(const std::string& module, double flops, double seconds) {
    steps.push_back({.module = module, .again = again, .flops = flops, .compute_s = seconds});
  }
  void add_exchange(const std::string& module, What what, double bytes) {
    if (job.tensor == 1) return;
    steps.push_back({.module = module, .again = again, .what = what, .bytes = bytes});
  }
  void add_product(const Product& p) {
    const double flops = 2 * m() * p.k * p.n;
    const double operands = operand(p.of) * (m() * p.k + p.k * p.n) + e() * m() * p.n;
    add_compute(p.name, flops,
                multiplied_s(flops, product_rate(p.name == "logits"), p.of) +
                    (stack.apart ? streamed_s(stack.operand_traffic * operands) : 0));
  }
  /// A curve is of whole layers: what products reach at most changes with their type, not the rest.
  double multiplied_s(double flops, double rate, const Operands& of) const {
    if (stack.apart) return flops * of.slower / rate;
    const double most = std::max(rate, device.peak_flops * device.product_share);
    return flops / rate + (of.slower - 1) * flops / most;
  }
  double cast_bytes(const Operands& of) const {
    if (operand(of) == e() || of.casts_itself) return 0;
    return (1 + of.looks) * e() + (narrow(of) ? 2 : 1) * operand(of);
  }
  void add_cast(const std::string& module, double elements, double bytes) {
    if (bytes != 0) add_compute(module, 0, streamed_s(bytes * elements));
  }
  /// Tokens of which each rank has all columns.
  double whole_rows() const { return m() / (job.sequence_parallel ? t() : 1); }
  bool by_columns(const Product& p) const { return p.name == "qkv" || p.name == "up"; }
  void cast_input(const Product& p) {
    double bytes = cast_bytes(p.of);
    if (bytes > 0 && p.reads_norm && p.of.looks == 0)
      bytes -= 2 * e();  // it reads and writes anyhow
    add_cast(p.name, (by_columns(p) ? whole_rows() : m()) * p.k, bytes);
  }
  void cast_gradient(const Product& p) {
    add_cast(p.name, (by_columns(p) ? m() : whole_rows()) * p.n, cast_bytes(p.of));
    // The rows that other ranks cast are read and written once more, transposed.
    const bool narrow = cast_bytes(p.of) > 0 && operand(p.of) < e();
    if (by_columns(p) && narrow) add_cast(p.name, (m() - whole_rows()) * p.k, 2 * operand(p.of));
  }
  /// So many pairs of products (F: 1, I: 2), and keys and values that go round as often.
  void add_attention(int pairs) {
    const double flops =
        pairs * 2 * 2 * job.sequences * model.tokens * (model.tokens / job.context) * q() / t();
    const double executed = model.flash && model.causal ? flops / 2 : flops;
    Step step{.module = "attention",
              .again = again,
              .flops = flops,
              .compute_s = multiplied_s(executed, attention_rate(), model.attention)};
    // Queries, keys and values come with all tokens and leave with their own heads; gradients, too.
    for (int call = 0; call < 4 && job.ulysses > 1; ++call)
      steps.push_back({.module = "attention",
                       .again = again,
                       .group = Group::ulysses,
                       .what = What::all_to_all,
                       .bytes = e() * m() * (2 * q() + 2 * kv()) / t() / 4});
    if (job.context > job.ulysses) {
      step.group = Group::context;
      step.what = What::all_gather;
      step.bytes = job.context / job.ulysses * pairs * 2 * e() * m() * kv() / t();
      step.hidden = true;
    }
    steps.push_back(step);
  }
  /// Norms, dropout, residual additions, which every rank does in whole without sequence
  /// parallelism: 1/t of it is in the efficiency of layers, or in what the stack says passes
  /// memory.
  double repeated_s() const {
    if (job.sequence_parallel) return 0;
    double per_element = 0;
    for (int norm = 0; norm < model.norms; ++norm) per_element += 2 * e();
    for (int residual = 0; residual < 2; ++residual)
      per_element += 3 * e() + (model.dropout ? 1 : 0);
    return (1 - 1 / t()) * streamed_s(per_element * m() * model.hidden);
  }
  /// A stack's bytes are those of elements of 16 bits.
  double passing_s(double bytes_per_element) const {
    return streamed_s(bytes_per_element * e() / 2 * m() * model.hidden) / t() + repeated_s();
  }

  bool keeps_gathered() const { return stack.kept_per_hidden > 0 && !stack.gathers_again; }
  What sums() const { return job.sequence_parallel ? What::reduce_scatter : What::all_reduce; }
  void gather_input(const std::string& module) {
    if (!job.sequence_parallel) return;
    const bool of_mlp = module == "up" || module == "down";
    const bool of_layer = of_mlp || module == "qkv" || module == "projection";
    const double bytes =
        of_layer ? std::min(e(), operand(of_mlp ? model.mlp : model.projections)) : e();
    add_exchange(module, What::all_gather, bytes / e() * x_bytes());
  }

  void add_forward() {
    gather_input("qkv");
    for (const Product& p : {qkv(), projection(), up(), down()}) cast_input(p);
    cast_attention();
    add_product(qkv());
    add_attention(1);
    add_product(projection());
    if (!model.parallel_residual) {
      add_exchange("projection", sums(), x_bytes());
      gather_input("up");
    }
    add_product(up());
    add_product(down());
    add_exchange("down", sums(), x_bytes());
    add_compute("elementwise", 0, stack.apart ? passing_s(stack.forward_traffic) : repeated_s());
  }
  void cast_attention() {
    add_cast("attention", m() * (q() + 2 * kv()) / t(), cast_bytes(model.attention));
  }
  void add_input() {
    for (const Product& p : {qkv(), projection(), up(), down()}) cast_gradient(p);
    add_cast("attention", m() * q() / t(), cast_bytes(model.attention));
    gather_input("down");  // the gradient of a part of the sequence
    add_product(down());
    add_product(up());
    if (!model.parallel_residual) {
      add_exchange("up", sums(), x_bytes());
      gather_input("projection");
    }
    add_product(projection());
    add_attention(2);
    add_product(qkv());
    add_exchange("qkv", sums(), x_bytes());
    add_compute("elementwise", 0,
                stack.apart ? passing_s(stack.backward_traffic) / 2 : repeated_s());
  }
  void add_weight() {
    if (job.sequence_parallel && !keeps_gathered()) {
      gather_input("qkv");
      if (!model.parallel_residual) gather_input("up");
    }
    for (const Product& p : {down(), up(), projection(), qkv()}) add_product(p);
    if (!stack.apart) return;
    add_compute("elementwise", 0, passing_s(stack.backward_traffic) / 2);
    for (const auto& [module, count] : layer_parameters()) add_accumulation(module, count);
  }
  void add_accumulation(const std::string& module, double count) {
    if (stack.apart) add_compute(module, 0, streamed_s(stack.accumulation * count));
  }

  std::map<std::string, double> layer_parameters() const {
    std::map<std::string, double> count;
    for (const Product& p : {qkv(), projection(), up(), down()})
      count[p.name] = p.k * p.n + (model.biases ? p.n : 0);
    count["norms"] = model.norms * model.norm_vectors * model.hidden;
    return count;
  }
  double embedding_parameters() const {
    return (rows() + (model.learned_positions ? model.tokens : 0)) * model.hidden;
  }
  double head_parameters() const { return (rows() + model.norm_vectors) * model.hidden; }

  /// The host launches what one op does of one layer while the GPU works on what it has launched:
  /// each hides nearly all of the shorter one; exchanges hide the host, too.
  void wait_for_host(std::size_t from, double host_s) {
    if (!stack.apart || host_s <= 0) return;
    double gpu_s = 0;
    for (std::size_t i = from; i < steps.size(); ++i) {
      gpu_s += steps[i].compute_s;
      if (steps[i].bytes > 0 && steps[i].group == Group::tensor)
        gpu_s += exchange_s(steps[i].what, steps[i].bytes, job.tensor, job.tensor_link);
    }
    const double both_s = std::pow(std::pow(gpu_s, 4) + std::pow(host_s, 4), 0.25);
    add_compute("host", 0, both_s - gpu_s);
  }

  bool is_again(const std::string& part) const {
    return job.again == Again::selective && job.parts.contains(part);
  }
  int norms_before() const { return std::min(model.norms, 2); }
  /// Bytes that a rank reads and writes for a norm, for the activation function, for a whole layer.
  double norm_bytes() const { return 2 * x_bytes() / (job.sequence_parallel ? t() : 1); }
  double activation_bytes() const {
    return ((model.gated ? 2 : 1) + 1) * e() * m() * model.columns / t();
  }
  double layer_bytes() const {
    const double addition = (3 * e() + (model.dropout ? 1 : 0)) * m() * model.hidden;
    const double rotary = model.rotary ? 2 * e() * m() * (q() + kv()) / t() : 0;
    return model.norms * norm_bytes() + 2 * addition / (job.sequence_parallel ? t() : 1) +
           activation_bytes() + rotary;
  }
  /// A stack's traffic is divided as the bytes are; the neutral one has only what stands alone.
  void add_moved(const std::string& module, double bytes) {
    add_compute(
        module, 0,
        stack.apart ? passing_s(stack.forward_traffic) * bytes / layer_bytes() : streamed_s(bytes));
  }
  /// Products in torchtitan's order are q k v o [gate] up down; a policy of selective checkpointing
  /// saves outputs of the first, third, ... and of attention, and stops where nothing more is read.
  /// Bytes that norms and additions move cost beside products only where none is before them.
  void add_every_second_product() {
    int count = 0;
    const auto second = [&](Product p, double columns) {
      p.n = columns;
      if (++count % 2 == 0) cast_input(p), add_product(p);
    };
    for (const double columns : {q(), kv(), kv()}) second(qkv(), columns / t());
    second(projection(), projection().n);
    for (int i = 0; i < (model.gated ? 2 : 1); ++i) second(up(), model.columns / t());
    const double addition = (3 * e() + (model.dropout ? 1 : 0)) * m() * model.hidden /
                            (job.sequence_parallel ? t() : 1);
    const double last = model.dropout ? addition : 0;  // its mask is read
    const double alone =
        norm_bytes() * (model.norms > 3 ? 2 : 1) + (model.gated ? 0 : activation_bytes()) + last;
    add_moved("elementwise", stack.apart ? layer_bytes() - addition + last : alone);
  }
  void add_parts() {
    if (is_again("every_second_product")) return add_every_second_product();
    if (is_again("core_attn")) {
      cast_attention();
      add_attention(1);
    }
    if (is_again("layernorm")) add_moved("norms", norms_before() * norm_bytes());
    if (is_again("mlp")) {
      gather_input("up");
      for (const Product& p : {up(), down()}) cast_input(p);
      add_product(up());
      if (stack.apart) add_moved("activation", activation_bytes());
      add_product(down());
      add_exchange("down", sums(), x_bytes());
    } else if (is_again("moe_act")) {
      add_moved("activation", activation_bytes());
    }
  }

  void play_layer_forward() {
    const std::size_t from = steps.size();
    add_forward();
    wait_for_host(from, stack.forward_host_s + tensor_host_s());
  }
  void play_layer_input(int layer) {
    const std::size_t from = steps.size();
    double host_s = (stack.backward_host_s + tensor_host_s()) / 2;
    again = true;
    if (in_full(layer)) {
      add_forward();
      host_s += stack.forward_host_s + tensor_host_s();
    }
    if (job.again == Again::selective) add_parts();
    again = false;
    add_input();
    wait_for_host(from, host_s);
  }
  void play_layer_weight() {
    const std::size_t from = steps.size();
    add_weight();
    wait_for_host(from, (stack.backward_host_s + tensor_host_s()) / 2);
  }
  bool in_full(int layer) const { return job.again == Again::full && layer < job.first_layers; }
  double tensor_host_s() const { return job.tensor > 1 ? stack.tensor_host_s : 0; }

  void add_logits_traffic() {
    if (stack.apart) add_compute("loss", 0, streamed_s(stack.logits_traffic * m() * rows()));
  }
  /// The divided message of another stage.
  void gather_message(bool there) {
    if (there && job.divided_messages && !job.sequence_parallel)
      add_exchange("message", What::all_gather, x_bytes());
  }

  void play_forward() {
    gather_message(!job.first);
    if (job.first) add_exchange("embedding", sums(), x_bytes());
    for (int layer = 0; layer < job.layers; ++layer) play_layer_forward();
    if (!job.last) return;
    gather_input("logits");
    add_cast("logits", m() * model.hidden, narrow(model.logits) ? cast_bytes(model.logits) : 0);
    add_product(logits());
    // The loss: maximum, the target's logit, sum of exponentials, fp32 of each token.
    for (int number = 0; number < 3; ++number) add_exchange("loss", What::all_reduce, 4 * m());
    add_logits_traffic();
  }
  void play_input() {
    gather_message(!job.last);
    if (job.last) {
      add_product(logits());
      add_cast("logits", m() * rows(), narrow(model.logits) ? cast_bytes(model.logits) : 0);
      add_exchange("logits", sums(), x_bytes());
      add_logits_traffic();
    }
    for (int layer = job.layers - 1; layer >= 0; --layer) play_layer_input(layer);
  }
  void play_weight() {
    if (job.last) {
      gather_input("logits");
      add_product(logits());
      add_accumulation("logits", head_parameters());
    }
    for (int layer = job.layers - 1; layer >= 0; --layer) play_layer_weight();
    if (job.first) {
      gather_input("embedding");  // the gradient of a part of the sequence
      add_accumulation("embedding", embedding_parameters());
    }
  }
};

/// The neutral stack: an op takes no less than the launches of its kernels (20 of a layer's F, 20
/// of I, 20 of W; models/device.hpp), nor than reading the weights once.
void hold_to_floor(Player& player, Kind kind) {
  const Job& job = player.job;
  if (player.stack.apart) return;
  double kernels = 0, read_bytes = 0;
  for (int layer = 0; layer < job.layers; ++layer) {
    kernels += kind == Kind::backward ? 40 : 20;
    const bool makes_again = player.in_full(layer) || job.again == Again::selective;
    if (makes_again && (kind == Kind::backward || kind == Kind::input)) kernels += 20;
  }
  for (const auto& [module, count] : parameters(player.model, job))
    read_bytes += job.weight_bytes * count;
  const double computed_s = Played{player.steps}.computed_s();
  const double least_s = std::max(kernels * player.device.launch_s, player.streamed_s(read_bytes));
  if (computed_s < least_s) player.add_compute("host", 0, least_s - computed_s);
}

}  // namespace

double exchange_s(What what, double bytes, int ranks, const Link& link) {
  const int steps = what == What::all_reduce ? 2 * (ranks - 1) : ranks - 1;
  return steps * (link.latency_s + bytes / ranks / link.bytes_per_s);
}

double Played::flops(bool again) const {
  double sum = 0;
  for (const Step& step : steps) sum += step.again == again ? step.flops : 0;
  return sum;
}

double Played::computed_s() const {
  double sum = 0;
  for (const Step& step : steps) sum += step.compute_s;
  return sum;
}

double Played::seconds(const Job& job) const {
  double sum = 0;
  for (const Step& step : steps) {
    if (step.bytes == 0) {
      sum += step.compute_s;
    } else if (step.group == Group::ulysses) {
      sum += exchange_s(step.what, step.bytes, job.ulysses, job.context_link);
    } else if (!step.hidden) {
      sum += step.compute_s + exchange_s(step.what, step.bytes, job.tensor, job.tensor_link);
    } else {
      const int ring = job.context / job.ulysses;
      const double part_s = step.compute_s / ring;
      const double round_s = exchange_s(step.what, step.bytes, ring, job.context_link) / (ring - 1);
      for (int round = 0; round + 1 < ring; ++round) sum += std::max(part_s, round_s);
      sum += part_s;
    }
  }
  return sum;
}

std::map<std::pair<Group, What>, Played::Sum> Played::exchanged() const {
  std::map<std::pair<Group, What>, Sum> sums;
  for (const Step& step : steps) {
    if (step.bytes == 0) continue;
    Sum& sum = sums[{step.group, step.what}];
    sum.bytes += step.bytes;
    ++sum.calls;
  }
  return sums;
}

Played play(const Model& model, const Device& device, const Stack& stack, const Job& job,
            Kind kind) {
  Player player{model, device, stack, job};
  if (kind == Kind::forward) player.play_forward();
  if (kind == Kind::backward || kind == Kind::input) player.play_input();
  if (kind == Kind::backward || kind == Kind::weight) player.play_weight();
  hold_to_floor(player, kind);
  return {player.steps};
}

std::map<std::string, double> parameters(const Model& model, const Job& job) {
  const Player player{model, {}, {}, job};
  std::map<std::string, double> count;
  for (const auto& [module, of_layer] : player.layer_parameters())
    count[module] = job.layers * of_layer;
  if (job.first) count["embedding"] = player.embedding_parameters();
  if (job.last) count["logits"] = player.head_parameters();
  if (job.first && job.last && model.tied) count["logits"] -= player.rows() * model.hidden;
  return count;
}

std::map<std::string, Kept> kept(const Model& model, const Stack& stack, const Job& job) {
  const Player p{model, {}, stack, job};
  const double t = p.t(), divided = job.sequence_parallel ? t : 1, e = p.e(), m = p.m();
  const double x = p.x_bytes() / divided, mask = model.dropout ? m * model.hidden / divided : 0;
  // Korthikanti et al., section 4.1: softmax, the mask and what dropout leaves.
  const double square = m * model.tokens * model.heads / t;
  const double probabilities = model.flash ? 0 : square * (model.dropout ? 2 * e + 1 : e);
  std::map<std::string, Kept> all;
  const auto keep = [&](const std::string& module, double until_input, double until_weight) {
    all[module].until_input += until_input;
    all[module].until_weight += until_weight;
  };
  for (int layer = 0; layer < job.layers; ++layer) {
    if (p.in_full(layer)) {
      if (layer % job.group == 0) keep("input", x, 0);
      continue;
    }
    const bool own_norm = !model.parallel_residual || model.norms > 1;
    const bool act_again = p.is_again("mlp") || p.is_again("moe_act");
    const double of_norms = p.is_again("layernorm") ? 0 : x, inner = e * m * model.columns / t;
    // Of an input that is cast, of what it was.
    const auto left = [&](const Operands& of) { return std::min(1.0, p.operand(of) / e); };
    const double of_qkv = m * (p.q() + 2 * p.kv()) / t, of_head = m * p.q() / t;
    const double copy = p.narrow(model.projections) ? model.projections.bytes * of_head : 0;
    const double up = p.is_again("mlp") ? 0 : (model.gated ? 2 : 1) * inner;
    const double squares = p.is_again("core_attn") ? 0 : probabilities;
    // Outputs of q, v, gate or up, and down where it is the seventh; attention's; the input.
    const bool second = p.is_again("every_second_product");
    const double of_second =
        x + e * m * (p.q() + p.kv()) / t + e * of_head + inner + (model.gated ? x : 0);
    if (second) {
      keep("layer", squares, of_second);
      continue;
    }
    if (stack.kept_per_hidden > 0) {
      // The stack says the sum; which of it ranks do not divide: inputs of the norms and of the
      // products behind them, or one of them that was gathered.
      const double size = e / 2;
      const double inputs = job.sequence_parallel ? (p.keeps_gathered() ? 1 : 0) : 4;
      const double whole = size * (2 * inputs + stack.kept_whole) * m * model.hidden;
      const double sum =
          size * m * (stack.kept_per_hidden * model.hidden + stack.kept_per_column * model.columns);
      const double freed =
          (left(model.projections) + (own_norm ? left(model.mlp) : 0)) * (x - of_norms) +
          (model.gated ? 2 : 1) * inner - up + (act_again ? left(model.mlp) * inner : 0);
      const double narrower =
          (left(model.projections) - 1 + (own_norm ? left(model.mlp) - 1 : 0)) * x +
          (left(model.attention) - 1) * e * of_qkv + copy + (left(model.mlp) - 1) * inner;
      // At least the layer's input is there.
      keep("layer", std::max((sum - whole) / t + whole + squares - freed + narrower, x), 0);
      continue;
    }
    // All but masks waits for W (M_W of Qi et al.).
    keep("norms", 0, (model.parallel_residual ? 1 : model.norms) * x);
    keep("qkv", 0, left(model.projections) * of_norms);
    keep("attention", squares, 0);
    keep("attention", 0, left(model.attention) * e * of_qkv);
    keep("projection", mask, e * of_head + copy);
    keep("up", 0, (own_norm ? left(model.mlp) * of_norms : 0) + up);
    keep("down", mask, act_again ? 0 : left(model.mlp) * inner);
  }
  if (job.first) keep("embedding", mask, 0);
  if (job.last) {
    keep("final norm", 0, x);
    const double usual = stack.in_place ? model.element_bytes : 4;
    const double of_logit = stack.logits_kept > 0 ? stack.logits_kept : usual;
    keep("loss", of_logit * m * p.rows(), 0);
    keep("logits", 0, x);
  }
  return all;
}

double kept_after_input(const Model& model, const Stack& stack, const Job& job) {
  Job none = job;
  none.again = Again::none;
  Stack fused = stack;
  fused.kept_per_hidden = 0;
  double sum = 0;
  for (const auto& [module, of] : kept(model, fused, none)) sum += of.until_weight;
  return sum;
}

}  // namespace stage_oracle
