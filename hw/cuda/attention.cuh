// SPDX-License-Identifier: Apache-2.0
// Attention whose probabilities never leave the SM: tile by tile, forward and backward.
//
//   forward   of 16 queries a warp, over tiles of keys: s = q k^T, with the largest score m and the
//             sum l of exp2(s - m) so far; what was summed before is scaled when m grows. Kept: the
//             context o and L = m + log2 l, of scores times scale x log2 e
//   backward  p = exp2(s - L), dp = do v^T, ds = scale p (dp - sum(do o)); dv = p^T do, dk = ds^T
//   q,
//             dq = ds k
// The backward goes twice, once by blocks of keys (dk, dv) and once by blocks of queries (dq), and
// recomputes p in both: so every sum has one owner and one order, and needs no atomics. That is 7
// products instead of 5.
// Sources: Dao et al., NeurIPS'22, algorithms 1 and 4; Dao, ICLR'24, section 3.
#pragma once

#include "hw/cuda/tiles.cuh"

namespace penstock::cuda {

/// The rows of a head of a sequence: where they begin, and how far apart they are.
template <class T>
struct Matrix {
  T* data;
  std::int64_t stride;  ///< elements between rows
};

struct AttentionShape {
  std::int64_t heads, hidden, sums;  ///< of a sequence; all heads of it; as of Attention
  int length, size;                  ///< of a sequence, of a head
  bool causal;
  float scale, log2_scale;  ///< 1 / sqrt(size); times log2 e
  bool packed;              ///< rows of a head are whole pieces of 16 bytes

  static AttentionShape from_attention(const Attention& a, int element_bytes) {
    const float scale = 1.0F / std::sqrt(static_cast<float>(a.head_size));
    return {a.heads,
            a.hidden(),
            a.sums(),
            static_cast<int>(a.seq_length),
            static_cast<int>(a.head_size),
            a.causal,
            scale,
            scale * 1.4426950409F,
            a.head_size * element_bytes % 16 == 0};
  }
  PENSTOCK_HD bool visible(int query, int key) const {
    return key < length && query < length && (!causal || key <= query);
  }
  /// `head` counts those of all sequences. part 0: queries, 1: keys, 2: values.
  template <class T>
  PENSTOCK_HD Matrix<T> part(T* qkv, std::int64_t head, int part) const {
    const std::int64_t row = head / heads * length;
    return {qkv + (3 * row + part) * hidden + head % heads * size, 3 * hidden};
  }
  template <class T>
  PENSTOCK_HD Matrix<T> context(T* data, std::int64_t head) const {
    const std::int64_t row = head / heads * length;
    return {data + row * hidden + head % heads * size, hidden};
  }
};

/// Elements of a row in shared memory: 16 bytes more than the row has, so that eight rows begin in
/// different banks.
template <class T, int kSize>
inline constexpr int kTileStride = kSize + 16 / static_cast<int>(sizeof(T));

/// kLine elements of each of `rows` rows from row `first` on, as a tile; 0 where there are none.
template <int kSize, int kPack, class T>
PENSTOCK_HD void load_packs(const Matrix<const T>& from, int first, int rows, int there, int size,
                            T* tile) {
  constexpr int kOfRow = kSize / kPack;
  for (int i = thread_of_block(); i < rows * kOfRow; i += threads_of_block()) {
    const int row = i / kOfRow, column = i % kOfRow * kPack;
    kernels::Pack<T, kPack> pack{};
    if (first + row < there && column < size)
      pack = kernels::load<kPack>(from.data + (first + row) * from.stride + column);
    kernels::store<kPack>(tile + row * kTileStride<T, kSize> + column, pack);
  }
}

template <int kSize, class T>
PENSTOCK_HD void load_tile(const AttentionShape& a, const Matrix<const T>& from, int first,
                           int rows, T* tile) {
  constexpr int kPack = 16 / static_cast<int>(sizeof(T));
  if (a.packed) return load_packs<kSize, kPack>(from, first, rows, a.length, a.size, tile);
  load_packs<kSize, 1>(from, first, rows, a.length, a.size, tile);
}

/// A warp's 16 rows, by way of its own rows of a tile; they belong at row `first`.
template <int kSize, class T>
PENSTOCK_HD void write_rows(const AttentionShape& a, Accumulators<kSize>& rows, T* tile,
                            const Matrix<T>& to, int first) {
  constexpr int kStride = kTileStride<T, kSize>;
  sync_warp();
  rows.each([&](float& x, int row, int column) {
    tile[row * kStride + column] = kernels::from_float<T>(x);
  });
  sync_warp();
  const int pack = a.packed ? 16 / static_cast<int>(sizeof(T)) : 1;
  const int of_row = a.size / pack;
  for (int held = 0; held < kHeldLanes; ++held) {
    for (int i = lane_of(held); i < 16 * of_row; i += 32) {
      const int row = i / of_row, column = i % of_row * pack;
      if (first + row >= a.length) break;
      const T* x = tile + row * kStride + column;
      T* y = to.data + (first + row) * to.stride + column;
      if (a.packed) {
        kernels::store<16 / sizeof(T)>(y, kernels::load<16 / sizeof(T)>(x));
      } else {
        *y = *x;
      }
    }
  }
}

struct Larger {
  PENSTOCK_HD float operator()(float a, float b) const { return a > b ? a : b; }
};
struct Sum {
  PENSTOCK_HD float operator()(float a, float b) const { return a + b; }
};

template <class Multiply, int kSize>
struct AttentionForward {
  using T = typename Multiply::Element;
  static constexpr int kTile = Multiply::kForwardTile;
  static constexpr bool kHeavyLast = true;  ///< of a causal model
  static constexpr int kStride = kTileStride<T, kSize>;
  static constexpr int kScratch = Multiply::kScratch * kTile;  ///< of a warp
  static constexpr std::size_t kSharedBytes =
      sizeof(T) * ((kTileRows + 2 * kTile) * kStride + kWarps * kScratch);

  AttentionShape a;
  const T* qkv;
  T* context;
  float* log_sums;

  PENSTOCK_HD int tiles() const { return (a.length + kTileRows - 1) / kTileRows; }

  PENSTOCK_HD void run_tile(std::int64_t head, int tile, void* shared) const {
    T* queries = static_cast<T*>(shared);
    T* keys = queries + kTileRows * kStride;
    T* values = keys + kTile * kStride;
    T* scratch = values + kTile * kStride + warp_of_block() * kScratch;
    T* own = queries + warp_of_block() * 16 * kStride;
    const int begin = tile * kTileRows;
    const int first = begin + 16 * warp_of_block();

    load_tile<kSize>(a, a.part(qkv, head, 0), begin, kTileRows, queries);
    sync_block();
    const auto q = Multiply::template load<kSize>(own, kStride);
    Accumulators<kSize> out;
    RowValues largest = RowValues::all(-INFINITY), sum = RowValues::all(0);
    const int last = begin + kTileRows < a.length ? begin + kTileRows : a.length;
    const int end = a.causal ? last : a.length;
    for (int key = 0; key < end; key += kTile) {
      sync_block();
      load_tile<kSize>(a, a.part(qkv, head, 1), key, kTile, keys);
      load_tile<kSize>(a, a.part(qkv, head, 2), key, kTile, values);
      sync_block();
      if (first >= a.length || (a.causal && key > first + 15)) continue;
      Accumulators<kTile> s;
      Multiply::multiply_transposed(s, q, keys, kStride);
      s.each([&](float& x, int row, int column) {
        x = a.visible(first + row, key + column) ? x * a.log2_scale : -INFINITY;
      });
      add_tile(s, largest, sum, out);
      Multiply::multiply(out, Multiply::from(s, scratch), values, kStride);
    }
    if (first >= a.length) return;
    out.each_with(sum, [](float& x, float all) { x /= all; });
    write_rows<kSize>(a, out, own, a.context(context, head), first);
    write_sums(head, first, largest, sum);
  }

 private:
  /// Scores become what they are with regard to the largest so far. A row without a visible key,
  /// behind the last one, has the largest -inf, and anything as its sum.
  PENSTOCK_HD static void add_tile(Accumulators<kTile>& s, RowValues& largest, RowValues& sum,
                                   Accumulators<kSize>& out) {
    RowValues grown = combine_rows(s, -INFINITY, Larger{});
    RowValues before = RowValues::all(0);
    PENSTOCK_UNROLL
    for (int held = 0; held < kHeldLanes; ++held) {
      PENSTOCK_UNROLL
      for (int half = 0; half < 2; ++half) {
        float& top = largest.at[held][half];
        const float more = grown.at[held][half] > top ? grown.at[held][half] : top;
        before.at[held][half] = more > -INFINITY ? std::exp2(top - more) : 0;
        grown.at[held][half] = top = more;
      }
    }
    s.each_with(grown, [](float& x, float top) { x = top > -INFINITY ? std::exp2(x - top) : 0; });
    const RowValues added = combine_rows(s, 0, Sum{});
    PENSTOCK_UNROLL
    for (int held = 0; held < kHeldLanes; ++held) {
      PENSTOCK_UNROLL
      for (int half = 0; half < 2; ++half) {
        float& all = sum.at[held][half];
        all = all * before.at[held][half] + added.at[held][half];
      }
    }
    out.each_with(before, [](float& x, float share) { x *= share; });
  }

  /// By one lane of each row's four.
  PENSTOCK_HD void write_sums(std::int64_t head, int first, const RowValues& largest,
                              const RowValues& sum) const {
    for (int held = 0; held < kHeldLanes; ++held) {
      const int lane = lane_of(held);
      for (int half = 0; half < 2; ++half) {
        const int row = first + lane / 4 + 8 * half;
        if (lane % 4 != 0 || row >= a.length) continue;
        log_sums[head * a.length + row] = largest.at[held][half] + std::log2(sum.at[held][half]);
      }
    }
  }
};

/// scratch = sums of dcontext times context of each row and head.
template <class Team, class T, int kPack>
PENSTOCK_HD void context_products_each(const Team& team, const AttentionShape& a, const T* context,
                                       const T* dcontext, float* scratch) {
  for (std::int64_t i = team.rank(); i < a.sums; i += team.size()) {
    const std::int64_t head = i / a.length, row = i % a.length;
    const Matrix<const T> x = a.context(context, head), y = a.context(dcontext, head);
    float sum = 0;
    for (int c = 0; c < a.size; c += kPack) {
      const auto o = kernels::load<kPack>(x.data + row * x.stride + c);
      const auto d = kernels::load<kPack>(y.data + row * y.stride + c);
      for (int k = 0; k < kPack; ++k)
        sum += kernels::to_float(o.at[k]) * kernels::to_float(d.at[k]);
    }
    scratch[i] = sum;
  }
}

/// Rows are keys (dk and dv of them, over tiles of queries) or queries (dq, over tiles of keys).
template <class Multiply, int kSize, bool kOfKeys>
struct AttentionBackward {
  using T = typename Multiply::Element;
  static constexpr int kTile = 32;
  static constexpr bool kHeavyLast = !kOfKeys;
  static constexpr int kStride = kTileStride<T, kSize>;
  static constexpr int kScratch = Multiply::kScratch * kTile;
  static constexpr std::size_t kSharedBytes =
      sizeof(T) * ((2 * kTileRows + 2 * kTile) * kStride + kWarps * kScratch) +
      sizeof(float) * 2 * kTile;

  AttentionShape a;
  const T* qkv;
  const T* dcontext;
  const float* log_sums;
  const float* products;  ///< of context and dcontext
  T* dqkv;

  PENSTOCK_HD int tiles() const { return (a.length + kTileRows - 1) / kTileRows; }

  PENSTOCK_HD void run_tile(std::int64_t head, int tile, void* shared) const {
    // What meets whom: keys and values the queries and the context's gradient, or the reverse.
    T* rows_k = static_cast<T*>(shared);
    T* rows_v = rows_k + kTileRows * kStride;
    T* tile_k = rows_v + kTileRows * kStride;
    T* tile_v = tile_k + kTile * kStride;
    T* scratch = tile_v + kTile * kStride + warp_of_block() * kScratch;
    float* sums = reinterpret_cast<float*>(tile_v + kTile * kStride + kWarps * kScratch);
    T* own_k = rows_k + warp_of_block() * 16 * kStride;
    T* own_v = rows_v + warp_of_block() * 16 * kStride;
    const int begin = tile * kTileRows;
    const int first = begin + 16 * warp_of_block();

    load_tile<kSize>(a, side(head, kOfKeys ? 1 : 0), begin, kTileRows, rows_k);
    load_tile<kSize>(a, side(head, kOfKeys ? 2 : 3), begin, kTileRows, rows_v);
    Accumulators<kSize> dk, dv;  // of queries: dq, and nothing
    const int until = begin + kTileRows < a.length ? begin + kTileRows : a.length;
    const int from = kOfKeys && a.causal ? begin / kTile * kTile : 0;
    const int to = !kOfKeys && a.causal ? until : a.length;
    for (int other = from; other < to; other += kTile) {
      sync_block();
      load_tile<kSize>(a, side(head, kOfKeys ? 0 : 1), other, kTile, tile_k);
      load_tile<kSize>(a, side(head, kOfKeys ? 3 : 2), other, kTile, tile_v);
      if (kOfKeys) load_sums(head, other, sums);
      sync_block();
      if (first >= a.length || hidden(first, other)) continue;
      Accumulators<kTile> p, ds;
      probabilities(head, first, other, own_k, tile_k, sums, p);
      gradients(head, first, other, own_v, tile_v, sums, p, ds);
      if constexpr (kOfKeys) Multiply::multiply(dv, Multiply::from(p, scratch), tile_v, kStride);
      Multiply::multiply(dk, Multiply::from(ds, scratch), tile_k, kStride);
    }
    if (first >= a.length) return;
    write_rows<kSize>(a, dk, own_k, a.part(dqkv, head, kOfKeys ? 1 : 0), first);
    if constexpr (kOfKeys) write_rows<kSize>(a, dv, own_v, a.part(dqkv, head, 2), first);
  }

 private:
  /// 0: queries, 1: keys, 2: values, 3: the gradient of the context.
  PENSTOCK_HD Matrix<const T> side(std::int64_t head, int which) const {
    return which == 3 ? a.context(dcontext, head) : a.part(qkv, head, which);
  }
  /// Does no query of the one see a key of the other?
  PENSTOCK_HD bool hidden(int first, int other) const {
    if (!a.causal) return false;
    return kOfKeys ? other + kTile - 1 < first : other > first + 15;
  }
  PENSTOCK_HD void load_sums(std::int64_t head, int query, float* sums) const {
    for (int i = thread_of_block(); i < kTile; i += threads_of_block()) {
      const bool there = query + i < a.length;
      sums[i] = there ? log_sums[head * a.length + query + i] : 0;
      sums[kTile + i] = there ? products[head * a.length + query + i] : 0;
    }
  }
  /// f(query, key, log sum, product of context and gradient) of an element of the tile.
  template <class F>
  PENSTOCK_HD void of_element(std::int64_t head, int first, int other, int row, int column,
                              const float* sums, const F& f) const {
    if constexpr (kOfKeys) {
      f(other + column, first + row, sums[column], sums[kTile + column]);
    } else {
      const int query = first + row;
      const std::int64_t at = head * a.length + (query < a.length ? query : a.length - 1);
      f(query, other + column, log_sums[at], products[at]);
    }
  }
  PENSTOCK_HD void probabilities(std::int64_t head, int first, int other, const T* own,
                                 const T* tile, const float* sums, Accumulators<kTile>& p) const {
    Multiply::multiply_transposed(p, Multiply::template load<kSize>(own, kStride), tile, kStride);
    p.each([&](float& x, int row, int column) {
      of_element(head, first, other, row, column, sums,
                 [&](int query, int key, float log_sum, float) {
                   x = a.visible(query, key) ? std::exp2(x * a.log2_scale - log_sum) : 0;
                 });
    });
  }
  PENSTOCK_HD void gradients(std::int64_t head, int first, int other, const T* own, const T* tile,
                             const float* sums, Accumulators<kTile>& p,
                             Accumulators<kTile>& ds) const {
    Multiply::multiply_transposed(ds, Multiply::template load<kSize>(own, kStride), tile, kStride);
    PENSTOCK_UNROLL
    for (int held = 0; held < kHeldLanes; ++held) {
      const int lane = lane_of(held);
      PENSTOCK_UNROLL
      for (int j = 0; j < kTile / 8; ++j) {
        PENSTOCK_UNROLL
        for (int c = 0; c < 4; ++c) {
          float& x = ds.at[held][j][c];
          of_element(head, first, other, lane / 4 + 8 * (c / 2), 8 * j + 2 * (lane % 4) + c % 2,
                     sums, [&](int, int, float, float product) {
                       x = a.scale * p.at[held][j][c] * (x - product);
                     });
        }
      }
    }
  }
};

}  // namespace penstock::cuda
