// SPDX-License-Identifier: Apache-2.0
// Where the processes of a run find each other, and whom they let in.
#include "hw/host/gloo_group.hpp"

#include "base/error.hpp"
#include "tests/hw/error_text.hpp"
#include "tests/hw/silent_listener.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace penstock::rendezvous_test {
namespace {

TEST(Rendezvous, AnotherRunAndAnotherSizeAreNotJoined) {
  const RendezvousServer server({0, 2, "mine"}, {0}, "127.0.0.1");
  const auto join = [&](const RunIdentity& identity) {
    return error_of([&] { connect_rendezvous(identity, "127.0.0.1", {server.port()}, 1, 5); });
  };
  EXPECT_TRUE(has_parts(join({1, 2, "yours"}), {"rank 0 did not come", "this is another run"}));
  EXPECT_TRUE(has_parts(join({1, 3, "mine"}), {"refuses: rank 1 expects 3 processes, rank 0 2"}));
  const auto first = connect_rendezvous({1, 2, "mine"}, "127.0.0.1", {server.port()}, 60, 60);
  EXPECT_TRUE(has_parts(join({1, 2, "mine"}), {"refuses: there is a rank 1 already"}));
}

int connected_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(static_cast<std::uint16_t>(port));
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}

/// Hands on what comes from one end until it closes; false: nothing came.
bool hand_on(int from, int to) {
  char bytes[4096];
  const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
  return got > 0 && ::send(to, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got;
}

/// Between a client and rank 0: the first connection's answer is swallowed, as a slow network does
/// for whoever has given up by then; later connections are left alone. Ends when `front` is shut
/// down.
void slow_then_fast(const SilentListener& front, int port) {
  const int early = ::accept(front.fd, nullptr, nullptr), to_server = connected_to(port);
  char answer[4096];
  EXPECT_TRUE(hand_on(early, to_server));
  EXPECT_GT(::recv(to_server, answer, sizeof answer, 0), 0);
  EXPECT_FALSE(hand_on(early, to_server));  // it has given up
  ::close(to_server);
  ::close(early);
  for (int client = 0; (client = ::accept(front.fd, nullptr, nullptr)) >= 0;) {
    const int server = connected_to(port);
    while (hand_on(client, server) && hand_on(server, client)) continue;
    ::close(server);
    ::close(client);
  }
}

TEST(Rendezvous, WhoGivesUpOnASlowAnswerAndComesAgainHasNotLeft) {
  RendezvousServer server({0, 2, "r"}, {0}, "127.0.0.1");
  const SilentListener front;
  std::thread relay([&] { slow_then_fast(front, server.port()); });
  auto client = connect_rendezvous({1, 2, "r"}, "127.0.0.1", {front.port}, 60, 60);
  EXPECT_EQ(server.try_get("key", 1).found, RendezvousStore::Found::not_yet);
  client->set("key", "value");
  EXPECT_EQ(server.try_get("key", 1).bytes, "value");
  client.reset();
  ::shutdown(front.fd, SHUT_RDWR);
  relay.join();
}

TEST(Rendezvous, AKeyOfARankThatHasLeftNeverComes) {
  RendezvousServer server({0, 2, "r"}, {0}, "127.0.0.1");
  auto client = connect_rendezvous({1, 2, "r"}, "127.0.0.1", {server.port()}, 60, 60);
  client->set("known", "value");
  client.reset();
  EXPECT_EQ(server.get("other", 1, 60).bytes, "rank 1 has ended");
  EXPECT_EQ(server.get("known", 1, 0).bytes, "value");
}

TEST(Rendezvous, AFailureReachesWhoeverWaits) {
  RendezvousServer server({0, 2, "r"}, {0}, "127.0.0.1");
  const auto client = connect_rendezvous({1, 2, "r"}, "127.0.0.1", {server.port()}, 60, 60);
  server.fail("rank 7 did not come");
  const auto answer = client->get("key", 0, 60);
  EXPECT_EQ(answer.found, RendezvousStore::Found::never);
  EXPECT_EQ(answer.bytes, "rank 7 did not come");
}

TEST(Rendezvous, TheClockOfRankZeroIsReadThroughTheStore) {
  RendezvousServer server({0, 2, "r"}, {0}, "127.0.0.1");
  const auto client = connect_rendezvous({1, 2, "r"}, "127.0.0.1", {server.port()}, 60, 60);
  const double before_s = server.clock_s();
  const double there_s = client->clock_s();
  EXPECT_LE(before_s, there_s);
  EXPECT_LE(there_s, server.clock_s());
}

TEST(Rendezvous, WhoDoesNotKnowTheSecretDoesNotJoin) {
  const RendezvousServer server({0, 2, "r", "secret"}, {0}, "127.0.0.1");
  const auto join = [&](const std::string& secret) {
    return error_of([&] {
      connect_rendezvous({1, 2, "r", secret}, "127.0.0.1", {server.port()}, 1, 5);
    });
  };
  EXPECT_TRUE(has_parts(join("guess"), {"rank 0 did not come", "another secret"}));
  EXPECT_TRUE(has_parts(join(""), {"rank 0 did not come", "another secret"}));
  EXPECT_EQ(join("secret"), "no error");
}

/// What rank 0 sends, until it closes the connection or `bytes` have come.
std::string received(int fd, std::size_t bytes) {
  std::string all;
  char part[4096];
  for (ssize_t got = 0; all.size() < bytes && (got = ::recv(fd, part, sizeof part, 0)) > 0;)
    all.append(part, static_cast<std::size_t>(got));
  return all;
}

/// A request as the protocol frames it.
std::string request(char kind, int number, const std::string& first, const std::string& second,
                    std::uint64_t claimed = 0) {
  struct {
    std::uint32_t magic = 0x314b5450;
    std::int32_t number = 0;
    std::uint64_t first = 0, second = 0;
    char kind = 0, padding[7] = {};
  } head;
  head.number = number;
  head.first = claimed == 0 ? first.size() : claimed;
  head.second = second.size();
  head.kind = kind;
  return std::string(reinterpret_cast<const char*>(&head), sizeof head) + first + second;
}

void send_text(int fd, const std::string& text) {
  EXPECT_EQ(::send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

TEST(Rendezvous, AnImpostorNeitherSetsNorTakesARanksPlace) {
  RendezvousServer server({0, 2, "r", "secret"}, {0}, "127.0.0.1");
  const int fd = connected_to(server.port());
  send_text(fd, request('s', 0, "key", "forged"));
  EXPECT_NE(received(fd, 32 + 24).find("introduce yourself first"), std::string::npos);
  send_text(fd, request('h', 0, "2", std::string(32, 'a') + "r"));
  const std::string answer = received(fd, 32 + 32 + 64);
  EXPECT_EQ(answer.find("secret"), std::string::npos);
  send_text(fd, request('j', 1, std::string(64, '0'), ""));
  EXPECT_NE(received(fd, 32 + 27).find("another secret"), std::string::npos);
  send_text(fd, request('j', 1, std::string(64, '0'), ""));
  EXPECT_NE(received(fd, 32 + 24).find("introduce yourself first"), std::string::npos)
      << "a challenge holds once";
  EXPECT_EQ(server.try_get("key", 1).found, RendezvousStore::Found::not_yet);
  const auto client =
      connect_rendezvous({1, 2, "r", "secret"}, "127.0.0.1", {server.port()}, 60, 60);
  client->set("key", "true");
  EXPECT_EQ(server.try_get("key", 1).bytes, "true");
  ::close(fd);
}

TEST(Rendezvous, AClockThatSaysNoTimeIsSaid) {
  const RendezvousServer server({0, 2, "r"}, {0}, "127.0.0.1");
  const SilentListener front;
  std::thread between([&] {
    const int client = ::accept(front.fd, nullptr, nullptr), rank_0 = connected_to(server.port());
    for (int joining = 0; joining < 2; ++joining)
      EXPECT_TRUE(hand_on(client, rank_0) && hand_on(rank_0, client));
    EXPECT_NE(received(client, 1), "");
    send_text(client, request('+', 0, "soon", ""));
    ::close(rank_0);
    ::close(client);
  });
  const auto client = connect_rendezvous({1, 2, "r"}, "127.0.0.1", {front.port}, 60, 60);
  EXPECT_TRUE(has_parts(error_of([&] { client->clock_s(); }), {"does not say the time"}));
  between.join();
}

TEST(Rendezvous, AStrangerWhoAnnouncesAGigabyteIsLeft) {
  const RendezvousServer server({0, 2, "r"}, {0}, "127.0.0.1");
  const int fd = connected_to(server.port());
  send_text(fd, request('h', 0, "2", "", std::uint64_t{1} << 30U));
  EXPECT_EQ(received(fd, 1), "") << "closed";
  ::close(fd);
}

TEST(Rendezvous, ManyIdleConnectionsDoNotKeepARankOut) {
  const RendezvousServer server({0, 2, "r"}, {0}, "127.0.0.1");
  std::vector<int> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(connected_to(server.port()));
  EXPECT_NO_THROW(connect_rendezvous({1, 2, "r"}, "127.0.0.1", {server.port()}, 60, 60));
  for (const int fd : idle) ::close(fd);
}

TEST(Rendezvous, OverANetworkASecretIsNeeded) {
  GroupSettings s;
  s.identity = {1, 2, "r"};
  s.master_address = "192.0.2.1";
  s.ports = {29500};
  s.deadline_s = 0.1;
  EXPECT_TRUE(has_parts(error_of([&] { meet(s); }), {"PENSTOCK_SECRET", "is not set"}));
  s.identity.secret = "some";
  EXPECT_TRUE(has_parts(error_of([&] { meet(s); }), {"rank 0 did not come"}));
}

}  // namespace
}  // namespace penstock::rendezvous_test
