// SPDX-License-Identifier: Apache-2.0
#include "hw/host/meeting.hpp"

#include "base/clock.hpp"
#include "base/error.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <random>
#include <thread>

namespace penstock {

std::string random_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

bool on_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.");
}

namespace {

constexpr int kDefaultPort = 29500;  // torchrun's
constexpr int kPorts = 4;

// ---- the environment

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

/// "1214906368.0;tcp://192.0.2.2,10.0.0.1:37327;tcp6://..." -> "192.0.2.2": where mpirun runs, and
/// as a rule its first rank.
std::string first_address(const std::string& uri) {
  const std::string before = ";tcp://";
  const std::size_t found = uri.find(before);
  if (found == std::string::npos) return {};
  const std::size_t start = found + before.size();
  return uri.substr(start, uri.find_first_of(",:;", start) - start);
}

std::string master_address(const Environment& get, const char* rank_variable) {
  if (const auto given = get("MASTER_ADDR")) return *given;
  const std::string nodes = first_of(get, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"});
  if (!nodes.empty()) return first_host(nodes);
  const std::string launcher = first_of(get, {"SLURM_LAUNCH_NODE_IPADDR"});
  if (!launcher.empty()) return launcher;
  const auto local = get("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (local && local == get("OMPI_COMM_WORLD_SIZE")) return "127.0.0.1";
  const auto local_of_mpich = get("MPI_LOCALNRANKS");
  if (local_of_mpich && local_of_mpich == get("PMI_SIZE")) return "127.0.0.1";
  const std::string mpirun = first_address(first_of(get, {"OMPI_MCA_orte_hnp_uri"}));
  if (!mpirun.empty()) return mpirun;
  throw InputError("MASTER_ADDR", fmt::format("is not set, but {} is: give the address of rank 0, "
                                              "or a folder in PENSTOCK_RENDEZVOUS",
                                              rank_variable));
}

std::vector<int> master_ports(const Environment& get) {
  const auto given = get("MASTER_PORT");
  int first = given ? integer_variable("MASTER_PORT", *given, 1, 65535 - kPorts) : kDefaultPort;
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

  /// For its owner's eyes alone.
  void write(const std::string& host, int port, const RunIdentity& run) const {
    const std::filesystem::path unfinished = file.string() + ".new";
    std::error_code error;
    std::filesystem::remove(unfinished, error);
    const mode_t before = ::umask(077);
    std::ofstream out(unfinished);
    out << host << ' ' << port << ' ' << run.run << ' ' << run.secret << '\n';
    out.close();
    const int why = errno;
    ::umask(before);
    errno = why;
    if (!out) throw SystemError::from_errno("write", unfinished.string());
    std::filesystem::rename(unfinished, file, error);
    if (error)
      throw SystemError(fmt::format("cannot write '{}': {}", file.string(), error.message()));
  }
  bool read(std::string& host, int& port, RunIdentity& run) const {
    std::ifstream in(file);
    return static_cast<bool>(in >> host >> port >> run.run >> run.secret);
  }
};

std::unique_ptr<RendezvousStore> serve_in_folder(const GroupSettings& s) {
  RunIdentity identity = s.identity;
  identity.run = random_name();
  identity.secret = random_name() + random_name();
  const std::string host = s.hostname.empty() ? "127.0.0.1" : s.hostname;
  auto server = std::make_unique<RendezvousServer>(identity, std::vector<int>{0}, host);
  MeetingPoint{std::filesystem::path(s.folder) / "rank0"}.write(host, server->port(), identity);
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
    if (meeting.read(host, port, identity)) {
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

}  // namespace

std::optional<GroupSettings> group_settings(const Environment& get, double deadline_s) {
  const auto one = launched_as(get);
  if (!one) return std::nullopt;
  GroupSettings s;
  s.identity.size = one->size;
  s.identity.rank = one->rank;
  s.identity.run = first_of(get, {"TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID"});
  s.identity.secret = first_of(get, {"PENSTOCK_SECRET"});
  s.folder = first_of(get, {"PENSTOCK_RENDEZVOUS"});
  s.hostname = first_of(get, {"PENSTOCK_HOSTNAME"});
  const std::string interface = first_of(get, {"PENSTOCK_INTERFACE"});
  if (!interface.empty()) s.hostname = interface_address(interface);
  s.deadline_s = deadline_s;
  if (s.folder.empty() && s.identity.size > 1) {
    s.master_address = master_address(get, one->rank_variable);
    s.ports = master_ports(get);
  }
  return s;
}

std::unique_ptr<RendezvousStore> meet(const GroupSettings& s) {
  const bool first = s.identity.rank == 0;
  if (!s.folder.empty()) return first ? serve_in_folder(s) : join_in_folder(s);
  if (s.identity.secret.empty() && s.identity.size > 1 && !on_loopback(s.master_address))
    throw InputError("PENSTOCK_SECRET",
                     "is not set: ranks that meet over a network prove with it that they are of "
                     "one run; give all of them the same random text, as `openssl rand -hex 16` "
                     "prints one, or in PENSTOCK_RENDEZVOUS a folder that only you can read");
  if (first)
    return std::make_unique<RendezvousServer>(s.identity, s.ports,
                                              s.hostname.empty() ? s.master_address : s.hostname);
  return connect_rendezvous(s.identity, s.master_address, s.ports, s.deadline_s, s.deadline_s);
}

}  // namespace penstock
