#include "hw/host/gloo_group.hpp"

#include "base/error.hpp"

#include <fmt/format.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

namespace penstock {
namespace {

constexpr int kDefaultPort = 29500;  // torchrun's
constexpr int kPorts = 4;

double steady_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// ---- the environment

int integer(const std::string& name, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw InputError(name,
                     fmt::format("must be an integer from {} to {}, got '{}'", least, most, text));
  return value;
}

struct Launcher {
  const char* rank;
  const char* size;
};
constexpr Launcher kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                   {"SLURM_PROCID", "SLURM_NTASKS"}};

/// First of the variables that is set.
std::string first_of(const Environment& get, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto value = get(name)) return *value;
  return {};
}

/// "gpu[03-06,09],login1" -> "gpu03": task 0 runs on the first node of the list.
std::string first_host(const std::string& nodes) {
  const std::size_t open = nodes.find_first_of("[,");
  if (open == std::string::npos || nodes[open] == ',') return nodes.substr(0, open);
  return nodes.substr(0, open) +
         nodes.substr(open + 1, nodes.find_first_of("-,]", open) - open - 1);
}

std::string master_address(const Environment& get, const char* rank_variable) {
  if (const auto given = get("MASTER_ADDR")) return *given;
  const std::string nodes = first_of(get, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  if (!nodes.empty()) return first_host(nodes);
  const std::string launcher = first_of(get, {"SLURM_LAUNCH_NODE_IPADDR"});
  if (!launcher.empty()) return launcher;
  const auto local = get("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local && local == get("OMPI_COMM_WORLD_SIZE")) return "127.0.0.1";
  throw InputError("MASTER_ADDR", fmt::format("is not set, but {} is: give the address of rank 0, "
                                              "or a folder in PENSTOCK_RENDEZVOUS",
                                              rank_variable));
}

std::vector<int> master_ports(const Environment& get) {
  const auto given = get("MASTER_PORT");
  int first = given ? integer("MASTER_PORT", *given, 1, 65535 - kPorts) : kDefaultPort;
  // The agent's own store is there; asking it would only disturb it.
  if (get("TORCHELASTIC_USE_AGENT_STORE") == "True") ++first;
  std::vector<int> ports;
  for (int i = 0; i < kPorts; ++i) ports.push_back(first + i);
  return ports;
}

/// IPv4 address of an interface of this machine.
std::string interface_address(const std::string& name) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw SystemError::from_errno("list", "network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::string others;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(i->ifa_addr)->sin_addr, text,
                sizeof text);
    if (name == i->ifa_name) return text;
    others += (others.empty() ? "" : ", ") + std::string(i->ifa_name);
  }
  throw InputError("PENSTOCK_INTERFACE",
                   fmt::format("'{}' has no IPv4 address here; there are {}", name, others));
}

// ---- meeting

/// Rank 0's address in the folder where a run meets; written whole or not at all.
struct MeetingPoint {
  std::filesystem::path file;

  void write(const std::string& host, int port, const std::string& run) const {
    const std::filesystem::path unfinished = file.string() + ".new";
    std::ofstream(unfinished) << host << ' ' << port << ' ' << run << '\n';
    std::error_code error;
    std::filesystem::rename(unfinished, file, error);
    if (error)
      throw SystemError(fmt::format("cannot write '{}': {}", file.string(), error.message()));
  }
  bool read(std::string& host, int& port, std::string& run) const {
    std::ifstream in(file);
    return static_cast<bool>(in >> host >> port >> run);
  }
};

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

bool on_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.");
}

std::unique_ptr<RendezvousStore> serve_in_folder(const GroupSettings& s) {
  RunIdentity identity = s.identity;
  identity.run = random_name();
  const std::string host = s.hostname.empty() ? "127.0.0.1" : s.hostname;
  auto server =
      std::make_unique<RendezvousServer>(identity, std::vector<int>{0}, on_loopback(host));
  MeetingPoint{std::filesystem::path(s.folder) / "rank0"}.write(host, server->port(), identity.run);
  return server;
}

/// What is left of an earlier run may stand in the folder: nobody listens there any more, and it is
/// read again.
std::unique_ptr<RendezvousStore> join_in_folder(const GroupSettings& s) {
  const MeetingPoint meeting{std::filesystem::path(s.folder) / "rank0"};
  const double end_s = steady_s() + s.deadline_s;
  std::string seen = "no address there";
  while (steady_s() < end_s) {
    RunIdentity identity = s.identity;
    std::string host;
    int port = 0;
    if (meeting.read(host, port, identity.run)) {
      try {
        return connect_rendezvous(identity, host, {port}, std::min(1.0, end_s - steady_s()),
                                  s.deadline_s);
      } catch (const SystemError& e) {
        seen = e.what();
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  throw SystemError(fmt::format("rank 0 did not come to the folder '{}' within {:g} s: {}",
                                s.folder, s.deadline_s, seen));
}

std::unique_ptr<RendezvousStore> meet(const GroupSettings& s) {
  const bool first = s.identity.rank == 0;
  if (!s.folder.empty()) return first ? serve_in_folder(s) : join_in_folder(s);
  if (first)
    return std::make_unique<RendezvousServer>(s.identity, s.ports, on_loopback(s.master_address));
  return connect_rendezvous(s.identity, s.master_address, s.ports, s.deadline_s, s.deadline_s);
}

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

std::optional<std::string> environment(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

std::optional<GroupSettings> group_settings(const Environment& get, double deadline_s) {
  for (const Launcher& launcher : kLaunchers) {
    const auto rank = get(launcher.rank);
    const auto size = get(launcher.size);
    if (!rank && !size) continue;
    if (!rank || !size)
      throw InputError(rank ? launcher.size : launcher.rank,
                       fmt::format("is not set, but {} is", rank ? launcher.rank : launcher.size));
    GroupSettings s;
    s.identity.size = integer(launcher.size, *size, 1, 1 << 20);
    s.identity.rank = integer(launcher.rank, *rank, 0, s.identity.size - 1);
    s.identity.run = first_of(get, {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID"});
    s.folder = first_of(get, {"PENSTOCK_RENDEZVOUS"});
    s.hostname = first_of(get, {"PENSTOCK_HOSTNAME"});
    const std::string interface = first_of(get, {"PENSTOCK_INTERFACE"});
    if (!interface.empty()) s.hostname = interface_address(interface);
    s.deadline_s = deadline_s;
    if (s.folder.empty() && s.identity.size > 1) {
      s.master_address = master_address(get, launcher.rank);
      s.ports = master_ports(get);
    }
    return s;
  }
  return std::nullopt;
}

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
