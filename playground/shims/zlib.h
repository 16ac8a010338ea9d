// SPDX-License-Identifier: Apache-2.0
// Nothing is compressed in a browser: what traces/byte_sink.cpp asks of zlib, for plain files.
#pragma once

#include <unistd.h>

#include <cstdio>

using gzFile_s = std::FILE;
using gzFile = gzFile_s*;
inline constexpr int Z_OK = 0, Z_ERRNO = -1, Z_MEM_ERROR = -4;

inline gzFile gzdopen(int, const char*) { return nullptr; }
inline gzFile gzopen(const char* path, const char* mode) { return std::fopen(path, mode); }
inline int gzbuffer(gzFile, unsigned) { return 0; }
inline int gzwrite(gzFile, const void*, unsigned) { return -1; }
inline int gzread(gzFile file, void* into, unsigned most) {
  return static_cast<int>(std::fread(into, 1, most, file));
}
inline const char* gzerror(gzFile, int* problem) {
  *problem = Z_ERRNO;
  return "";
}
inline int gzclose(gzFile file) { return std::fclose(file); }
