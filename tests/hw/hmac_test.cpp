// SPDX-License-Identifier: Apache-2.0
// Against the vectors of FIPS 180-4's examples and of RFC 4231.
#include "hw/host/hmac.hpp"

#include <gtest/gtest.h>

namespace penstock::hmac_test {
namespace {

std::string hexadecimal(const Digest& digest) {
  std::string text;
  for (const std::uint8_t byte : digest)
    for (const int digit : {byte / 16, byte % 16}) text += "0123456789abcdef"[digit];
  return text;
}

TEST(Sha256, IsThatOfTheStandard) {
  EXPECT_EQ(hexadecimal(sha256("")),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hexadecimal(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hexadecimal(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hexadecimal(sha256(std::string(std::size_t{1'000'000}, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Hmac, IsThatOfTheStandard) {
  EXPECT_EQ(hmac(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hmac("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hmac(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Hmac, ProofsAreTheSameOrNot) {
  EXPECT_TRUE(same_proof("abc", "abc"));
  EXPECT_FALSE(same_proof("abc", "abd"));
  EXPECT_FALSE(same_proof("abc", "ab"));
}

}  // namespace
}  // namespace penstock::hmac_test
