// SPDX-License-Identifier: Apache-2.0
// HMAC-SHA-256 (RFC 2104, FIPS 180-4): how processes of a run prove that they know its secret.
// Written here because penstock-run is carried to other machines, as one program.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view text);

/// As 64 hexadecimal digits.
std::string hmac(std::string_view secret, std::string_view text);

/// Takes as long wherever they differ.
bool same_proof(std::string_view a, std::string_view b);

}  // namespace penstock
