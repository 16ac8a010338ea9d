// SPDX-License-Identifier: Apache-2.0
#include "hw/host/gloo_group.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"

#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <limits>

namespace penstock {
namespace {

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? random_name() : id;
}

// ---- gloo

/// What a gloo context needs of a store: the addresses of its two ends.
class PairStore : public gloo::rendezvous::Store {
 public:
  PairStore(RendezvousStore& store, std::string prefix, int peer, double deadline_s)
      : store_(store), prefix_(std::move(prefix)), peer_(peer), deadline_s_(deadline_s) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, std::string(data.begin(), data.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const auto answer = store_.get(prefix_ + key, peer_, deadline_s_);
    if (answer.found == RendezvousStore::Found::not_yet)
      throw SystemError(fmt::format("it did not come within {:g} s", deadline_s_));
    if (answer.found == RendezvousStore::Found::never) throw SystemError(answer.bytes);
    return {answer.bytes.begin(), answer.bytes.end()};
  }
  // get() waits.
  void wait(const std::vector<std::string>&) override {}
  void wait(const std::vector<std::string>&, const std::chrono::milliseconds&) override {}

 private:
  RendezvousStore& store_;
  std::string prefix_;
  int peer_;
  double deadline_s_;
};

std::string join_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return text;
}

}  // namespace

std::string gloo_text(const std::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.find("] ");
  return text.starts_with("[") && end != std::string::npos ? text.substr(end + 2) : text;
}

GlooGroup::GlooGroup(const GroupSettings& settings) : settings_(settings) {
  // "Never" would overflow gloo's clock arithmetic.
  constexpr double kDayS = 86400;
  if (settings_.deadline_s <= 0) settings_.deadline_s = kDayS;
  std::signal(SIGPIPE, SIG_IGN);
  store_ = meet(settings_);
  barrier();
  address_ = choose_address();
  gloo::transport::tcp::attr attr;
  attr.hostname = address_;
  try {
    device_ = gloo::transport::tcp::CreateDevice(attr);
  } catch (const std::exception& e) {
    give_up(fmt::format("rank {} cannot use the address '{}': {}", rank(), address_, gloo_text(e)));
  }
  clock_offset_s_ = measure_clock_offset_s();
}

GlooGroup::~GlooGroup() = default;

void GlooGroup::give_up(const std::string& reason) {
  store_->fail(reason);
  throw SystemError(reason);
}

std::string GlooGroup::next_key(const char* what) { return fmt::format("{}/{}/", what, calls_++); }

std::string GlooGroup::wait_for(const std::string& key, int owner, const std::string& what,
                                double wait_s) {
  auto answer = store_->get(key, owner, wait_s);
  if (answer.found == RendezvousStore::Found::never) throw SystemError(answer.bytes);
  if (answer.found == RendezvousStore::Found::not_yet)
    give_up(fmt::format("rank {} did not come to the {} within {:g} s", owner, what, wait_s));
  return std::move(answer.bytes);
}

/// On rank 0: what each rank has set, in order. Everybody has the whole deadline together.
std::vector<std::string> GlooGroup::collect(const std::string& key, const std::string& mine) {
  const double end_s = steady_s() + settings_.deadline_s;
  std::vector<std::string> all = {mine};
  std::vector<int> missing;
  for (int r = 1; r < size(); ++r) {
    auto answer = store_->get(key + std::to_string(r), r, end_s - steady_s());
    if (answer.found == RendezvousStore::Found::never) give_up(answer.bytes);
    if (answer.found == RendezvousStore::Found::not_yet) missing.push_back(r);
    all.push_back(std::move(answer.bytes));
  }
  if (!missing.empty())
    give_up(
        fmt::format("{} did not come within {:g} s", join_ranks(missing), settings_.deadline_s));
  return all;
}

std::vector<std::string> GlooGroup::gather(const std::string& bytes) {
  const std::string key = next_key("gather");
  if (rank() == 0) return collect(key, bytes);
  store_->set(key + std::to_string(rank()), bytes);
  return {};
}

void GlooGroup::barrier() {
  const std::string key = next_key("barrier");
  if (rank() == 0) {
    collect(key, "");
    store_->set(key + "go", "");
    return;
  }
  store_->set(key + std::to_string(rank()), "");
  // Rank 0 knows who is missing: it gets the time to say so.
  wait_for(key + "go", 0, "barrier", settings_.deadline_s * 1.5 + 1);
}

std::string GlooGroup::broadcast(const std::string& bytes, int root) {
  const std::string key = next_key("broadcast");
  // The root may still be waiting for somebody: it gets the time to say so.
  if (rank() != root) return wait_for(key, root, "broadcast", settings_.deadline_s * 1.1 + 1);
  store_->set(key, bytes);
  return bytes;
}

std::string GlooGroup::choose_address() {
  std::string mine = settings_.hostname;
  if (mine.empty()) mine = store_->local_address();
  if (mine.empty()) mine = "127.0.0.1";  // alone
  const std::string first = broadcast(mine, 0);
  // On rank 0's machine the way to rank 0 is loopback, where nobody else could reach this process.
  const bool local = settings_.hostname.empty() && on_loopback(mine);
  return local ? first : mine;
}

double GlooGroup::measure_clock_offset_s() {
  constexpr int kRounds = 64;
  if (broadcast(boot_id(), 0) == boot_id() || rank() == 0) return 0;
  double best_s = std::numeric_limits<double>::infinity();
  double offset_s = 0;
  for (int round = 0; round < kRounds; ++round) {
    const double sent_s = steady_s();
    const double there_s = store_->clock_s();
    const double back_s = steady_s();
    if (back_s - sent_s >= best_s) continue;
    best_s = back_s - sent_s;
    offset_s = there_s - (sent_s + back_s) / 2;
  }
  return offset_s;
}

std::shared_ptr<gloo::Context> GlooGroup::connect(const std::string& name, int peer, int end) {
  // gloo waits five times its timeout for a connection.
  const auto timeout =
      std::chrono::milliseconds(static_cast<std::int64_t>(settings_.deadline_s * 1000 / 5) + 1);
  auto context = std::make_shared<gloo::rendezvous::Context>(end, 2);
  context->setTimeout(timeout);
  // A channel is connected again for every repeat of a run: its old addresses are still there.
  const std::string prefix = fmt::format("connect/{}/{}/", name, connected_[name]++);
  PairStore store(*store_, prefix, peer, settings_.deadline_s);
  try {
    context->connectFullMesh(store, device_);
    // gloo ends the process when a connection is reset before it has looked at it: nobody goes on,
    // and perhaps fails, before both ends have.
    store.set(fmt::format("connected/{}", end), {});
    store.get(fmt::format("connected/{}", 1 - end));
  } catch (const std::exception& e) {
    give_up(fmt::format("rank {} cannot connect {} with rank {}: {}", rank(), name, peer,
                        gloo_text(e)));
  }
  return context;
}

}  // namespace penstock
