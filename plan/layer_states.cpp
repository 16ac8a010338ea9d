// SPDX-License-Identifier: Apache-2.0
#include "plan/layer_states.hpp"

#include <algorithm>
#include <map>

namespace penstock {
namespace {

/// What all antichains ask of the graph of layers.
class LayerGraph {
 public:
  explicit LayerGraph(const PipedreamProfile& profile) : layers_(profile.layers) {
    const std::size_t n = layers_.size();
    before_.assign(n, Bits(n));
    behind_.assign(n, Bits(n));
    for (std::size_t i = 0; i < n; ++i) {  // execution order: inputs come first
      for (const int reader : layers_[i].readers) {
        Bits& before = before_[static_cast<std::size_t>(reader)];
        before |= before_[i];
        before.insert(static_cast<int>(i));
      }
    }
    for (std::size_t i = n; i-- > 0;) {
      for (const int reader : layers_[i].readers) {
        behind_[i] |= behind_[static_cast<std::size_t>(reader)];
        behind_[i].insert(reader);
      }
    }
  }

  const ProfiledLayer& layer(int i) const { return layers_[static_cast<std::size_t>(i)]; }
  const Bits& before(int i) const { return before_[static_cast<std::size_t>(i)]; }
  const Bits& behind(int i) const { return behind_[static_cast<std::size_t>(i)]; }
  std::size_t size() const { return layers_.size(); }

  /// The source that stands first in the file.
  int first_source() const {
    std::vector<int> sources;
    Bits read(size());
    for (const ProfiledLayer& layer : layers_)
      for (const int reader : layer.readers) read.insert(reader);
    for (int i = 0; i < static_cast<int>(size()); ++i)
      if (!read.contains(i)) sources.push_back(i);
    return *std::ranges::min_element(sources, {}, [this](int i) { return layer(i).line; });
  }

  /// The layers before `antichain` that another branch reads, then the antichain.
  std::vector<int> augmented(const std::vector<int>& antichain) const {
    Bits extra(size());
    for (const int a : antichain) {
      for (const int p : before(a).members()) {
        for (const int reader : layer(p).readers)
          if (reader != a && !before(a).contains(reader)) extra.insert(p);
      }
    }
    std::vector<int> all = extra.members();
    all.insert(all.end(), antichain.begin(), antichain.end());
    return all;
  }

  Bits closed(const std::vector<int>& antichain) const {
    Bits all(size());
    for (const int a : antichain) {
      all |= before(a);
      all.insert(a);
    }
    return all;
  }

  /// `augmented` with `old` replaced by `next`, without layers that come before others of it.
  std::vector<int> advanced(std::vector<int> augmented, int old, int next) const {
    Bits all(size());
    std::ranges::replace(augmented, old, next);
    for (const int a : augmented) all.insert(a);
    std::vector<int> last;
    for (const int a : all.members())
      if (!behind(a).meets(all)) last.push_back(a);
    return last;
  }

  std::vector<std::vector<int>> next(const std::vector<int>& antichain) const {
    const std::vector<int> all = augmented(antichain);
    Bits in(size());
    for (const int a : all) in.insert(a);
    std::vector<std::vector<int>> found;
    for (const int a : all) {
      for (const int reader : layer(a).readers) {
        if (std::ranges::find(antichain, reader) != antichain.end()) continue;
        if (!behind(reader).meets(in)) found.push_back(advanced(all, a, reader));
      }
    }
    return found;
  }

 private:
  const std::vector<ProfiledLayer>& layers_;
  std::vector<Bits> before_, behind_;
};

/// The antichains reachable from the first source, and which leads to which.
struct AntichainGraph {
  std::vector<std::vector<int>> antichains;
  std::vector<std::vector<int>> next;

  AntichainGraph(const LayerGraph& layers, std::size_t most) {
    std::map<std::vector<int>, int> index;
    const auto number = [&](const std::vector<int>& antichain) {
      const auto [known, fresh] = index.try_emplace(antichain, static_cast<int>(antichains.size()));
      if (fresh) antichains.push_back(antichain);
      return known->second;
    };
    number({layers.first_source()});
    for (std::size_t at = 0; at < antichains.size() && antichains.size() <= most; ++at) {
      next.emplace_back();
      for (const std::vector<int>& antichain : layers.next(antichains[at]))
        next[at].push_back(number(antichain));
    }
  }

  /// Reverse postorder of a depth-first search.
  std::vector<int> topological_order() const {
    std::vector<int> order;
    std::vector<std::size_t> tried(next.size());
    std::vector<bool> seen(next.size());
    std::vector<int> path{0};
    seen[0] = true;
    while (!path.empty()) {
      const auto at = static_cast<std::size_t>(path.back());
      if (tried[at] == next[at].size()) {
        order.push_back(path.back());
        path.pop_back();
        continue;
      }
      const int to = next[at][tried[at]++];
      if (seen[static_cast<std::size_t>(to)]) continue;
      seen[static_cast<std::size_t>(to)] = true;
      path.push_back(to);
    }
    std::ranges::reverse(order);
    return order;
  }
};

void add_layer(LayerState& state, const ProfiledLayer& layer, double scale) {
  state.forward_s += scale * layer.forward_s;
  state.backward_s += scale * layer.backward_s;
  state.activation_bytes += scale * (layer.stash_bytes + layer.activation_bytes);
  state.parameter_bytes += layer.parameter_bytes;
}

LayerState state_of(const LayerGraph& layers, const std::vector<int>& antichain, double scale) {
  LayerState state;
  state.layers = antichain;
  state.layers_before = layers.closed(antichain);
  state.name = layers.layer(antichain.back()).id;
  for (const int i : state.layers_before.members()) add_layer(state, layers.layer(i), scale);
  for (const int i : layers.augmented(antichain))
    state.cut_bytes += scale * layers.layer(i).activation_bytes;
  return state;
}

}  // namespace

std::vector<LayerState> antichain_states(const PipedreamProfile& profile, double scale,
                                         std::size_t most) {
  const LayerGraph layers(profile);
  const AntichainGraph graph(layers, most);
  if (graph.antichains.size() > most) return {};
  const std::vector<int> order = graph.topological_order();
  std::vector<int> place(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    place[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  std::vector<LayerState> states;
  for (const int at : order)
    states.push_back(state_of(layers, graph.antichains[static_cast<std::size_t>(at)], scale));
  for (LayerState& state : states) state.states_before = Bits(states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    for (const int next : graph.next[static_cast<std::size_t>(order[i])]) {
      Bits& before =
          states[static_cast<std::size_t>(place[static_cast<std::size_t>(next)])].states_before;
      before |= states[i].states_before;
      before.insert(static_cast<int>(i));
    }
  }
  return states;
}

void make_chain(std::vector<LayerState>& states) {
  Bits before(states.size());
  for (std::size_t i = 0; i < states.size(); ++i) {
    states[i].states_before = before;
    before.insert(static_cast<int>(i));
  }
}

std::vector<LayerState> chain_states(const PipedreamProfile& profile, double scale) {
  const std::vector<double> cut = profiled_cut_bytes(profile);
  std::vector<LayerState> states;
  LayerState sum;
  sum.layers_before = Bits(profile.layers.size());
  for (std::size_t i = 0; i < profile.layers.size(); ++i) {
    add_layer(sum, profile.layers[i], scale);
    sum.cut_bytes = scale * cut[i + 1];
    sum.name = profile.layers[i].id;
    sum.layers = {static_cast<int>(i)};
    sum.layers_before.insert(static_cast<int>(i));
    states.push_back(sum);
  }
  make_chain(states);
  return states;
}

std::vector<int> layers_between(const std::vector<LayerState>& states, int begin, int end) {
  std::vector<int> found;
  for (const int layer : states[static_cast<std::size_t>(end)].layers_before.members()) {
    if (begin == 0 || !states[static_cast<std::size_t>(begin - 1)].layers_before.contains(layer))
      found.push_back(layer);
  }
  return found;
}

}  // namespace penstock
