#include "tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace lucid_fx::block {
namespace {

// Elements that a kernel takes at once: a multiple of every unit, and few enough that memcpy copies
// them in a loop; what it does with 2 KiB and more takes a while to begin.
constexpr size_t kChunk = 1024;
constexpr size_t kTask = 1 << 16;      // elements of a task
constexpr size_t kStreamed = 1 << 21;  // results with more elements do not stay in caches anyway
constexpr size_t kColumns = 64;        // columns that are turned into lines together

size_t product(const std::vector<size_t>& dims, size_t begin, size_t end) {
  size_t result = 1;
  for (size_t i = begin; i < end; ++i) result *= dims[i];
  return result;
}

size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

// Numbers of blocks, given to the elements of a row: everything along the last axis.
class RowNumbers {
 public:
  RowNumbers(const Blocks& blocks, const float* numbers) : blocks_(blocks), numbers_(numbers) {
    strides_.resize(blocks.dims.size());
    size_t stride = 1;
    for (size_t i = blocks.dims.size(); i-- > 0;) {
      strides_[i] = stride;
      stride *= ceil_div(blocks.dims[i], blocks.extents[i]);
    }
  }

  // The numbers of elements [begin, begin + n) of a row, n <= kChunk. The result lives in `room`.
  void spread(size_t row, size_t begin, size_t n, float* room) const {
    const float* numbers = numbers_ + offset(row);
    const size_t extent = blocks_.extents.back(), end = begin + n;
    for (size_t at = begin; at < end;) {
      const size_t stop = std::min(end, (at / extent + 1) * extent);
      std::fill(room + (at - begin), room + (stop - begin), numbers[at / extent]);
      at = stop;
    }
  }

 private:
  size_t offset(size_t row) const {
    size_t result = 0;
    for (size_t i = blocks_.dims.size() - 1; i-- > 0;) {
      result += row % blocks_.dims[i] / blocks_.extents[i] * strides_[i];
      row /= blocks_.dims[i];
    }
    return result;
  }

  const Blocks& blocks_;
  const float* numbers_;
  std::vector<size_t> strides_;
};

// The elements [begin, begin + n) of a row, n <= kChunk.
struct Piece {
  size_t row, begin, n;
};

// Walks a tensor whose lines are its rows: task(line bytes from the piece on, piece).
template <class Body>
void each_row_piece(const Machine& machine, const Packing& p, const Body& body) {
  const size_t width = p.dims.back(), rows = product(p.dims, 0, p.dims.size() - 1);
  if (width == 0 || rows == 0) return;
  const size_t columns = std::min(width, kTask), height = std::max<size_t>(kTask / width, 1);
  const size_t across = ceil_div(width, columns), down = ceil_div(rows, height);
  parallel_for(machine.parallel, across * down, [&](size_t task) {
    const size_t first = task / across * height, last = std::min(first + height, rows);
    const size_t left = task % across * columns, right = std::min(left + columns, width);
    for (size_t row = first; row < last; ++row) {
      for (size_t at = left; at < right; at += kChunk) {
        const Piece piece{row, at, std::min(kChunk, right - at)};
        body(piece, row * p.line_bytes() + at * p.bits / 8);
      }
    }
  });
}

// A tensor whose lines run across rows, seen as [outer, along, inner, width].
struct Crossing {
  size_t outer, along, inner, width;

  explicit Crossing(const Packing& p)
      : outer(product(p.dims, 0, p.axis)),
        along(p.dims[p.axis]),
        inner(product(p.dims, p.axis + 1, p.dims.size() - 1)),
        width(p.dims.back()) {}

  size_t row(size_t o, size_t at, size_t i) const { return (o * along + at) * inner + i; }
  size_t line(size_t o, size_t column, size_t i) const { return (o * width + column) * inner + i; }
};

// A part of it: [first, first + height) along the lines, of `columns` lines.
struct Patch {
  size_t o, i, first, height, left, columns;
};

template <class Body>
void each_patch(const Machine& machine, const Crossing& c, const Body& body) {
  const size_t across = ceil_div(c.width, kColumns);
  parallel_for(machine.parallel, c.outer * c.inner * across, [&](size_t task) {
    Patch patch;
    patch.left = task % across * kColumns;
    patch.columns = std::min(kColumns, c.width - patch.left);
    patch.i = task / across % c.inner;
    patch.o = task / across / c.inner;
    for (patch.first = 0; patch.first < c.along; patch.first += kChunk) {
      patch.height = std::min(kChunk, c.along - patch.first);
      body(patch);
    }
  });
}

bool lines_are_rows(const Packing& p) { return p.axis + 1 == p.dims.size(); }

// The bytes of a line from `begin` on: n codes, and zeros up to its end if they are the last.
void write_line(const Machine& m, const Packing& p, const uint8_t* codes, size_t begin, size_t n,
                size_t length, uint8_t* data) {
  m.kernels.pack(codes, n, static_cast<int>(p.bits), data);
  if (begin + n < length) return;
  const size_t written = ceil_div(n * p.bits, 8), until = p.line_bytes() - begin * p.bits / 8;
  std::memset(data + written, 0, until - written);
}

// Gives produce(piece, codes) all elements in pieces and writes the codes it returns.
template <class Produce>
void write_lines(const Machine& m, const Packing& p, uint8_t* data, const Produce& produce) {
  if (lines_are_rows(p)) {
    each_row_piece(m, p, [&](const Piece& piece, size_t at) {
      uint8_t room[kChunk];
      write_line(m, p, produce(piece, room), piece.begin, piece.n, p.dims.back(), data + at);
    });
    return;
  }
  const Crossing c(p);
  const size_t line_bytes = p.line_bytes();
  each_patch(m, c, [&](const Patch& patch) {
    uint8_t rows[kChunk * kColumns], line[kChunk];
    for (size_t r = 0; r < patch.height; ++r) {
      const Piece piece{c.row(patch.o, patch.first + r, patch.i), patch.left, patch.columns};
      uint8_t* room = &rows[r * kColumns];
      const uint8_t* codes = produce(piece, room);
      if (codes != room) std::memcpy(room, codes, patch.columns);
    }
    for (size_t k = 0; k < patch.columns; ++k) {
      for (size_t r = 0; r < patch.height; ++r) line[r] = rows[r * kColumns + k];
      uint8_t* to = data + c.line(patch.o, patch.left + k, patch.i) * line_bytes;
      write_line(m, p, line, patch.first, patch.height, c.along, to + patch.first * p.bits / 8);
    }
  });
}

// The inverse: consume(piece, codes) gets all elements in pieces.
template <class Consume>
void read_lines(const Machine& m, const Packing& p, const uint8_t* data, int sign,
                const Consume& consume) {
  const int bits = static_cast<int>(p.bits);
  if (lines_are_rows(p)) {
    each_row_piece(m, p, [&](const Piece& piece, size_t at) {
      uint8_t codes[kChunk];
      m.kernels.unpack(data + at, piece.n, bits, sign, codes);
      consume(piece, codes);
    });
    return;
  }
  const Crossing c(p);
  const size_t line_bytes = p.line_bytes();
  each_patch(m, c, [&](const Patch& patch) {
    uint8_t rows[kChunk * kColumns], line[kChunk];
    for (size_t k = 0; k < patch.columns; ++k) {
      const size_t at = c.line(patch.o, patch.left + k, patch.i) * line_bytes;
      m.kernels.unpack(data + at + patch.first * p.bits / 8, patch.height, bits, sign, line);
      for (size_t r = 0; r < patch.height; ++r) rows[r * kColumns + k] = line[r];
    }
    for (size_t r = 0; r < patch.height; ++r) {
      const Piece piece{c.row(patch.o, patch.first + r, patch.i), patch.left, patch.columns};
      consume(piece, &rows[r * kColumns]);
    }
  });
}

}  // namespace

size_t Packing::line_bytes() const { return ceil_div(dims[axis] * bits, 8 * unit) * unit; }

void pack(const Machine& machine, const Packing& packing, const uint8_t* codes, uint8_t* data) {
  const size_t width = packing.dims.back();
  write_lines(machine, packing, data, [&](const Piece& piece, uint8_t*) {
    return codes + piece.row * width + piece.begin;
  });
}

void unpack(const Machine& machine, const Packing& packing, const uint8_t* data, int sign,
            uint8_t* codes) {
  const size_t width = packing.dims.back();
  read_lines(machine, packing, data, sign, [&](const Piece& piece, const uint8_t* found) {
    std::memcpy(codes + piece.row * width + piece.begin, found, piece.n);
  });
}

bool quantize(const Machine& machine, const Packing& packing, const Blocks& blocks, const float* x,
              const float* scales, const Encoder& encoder, uint8_t* data) {
  const size_t width = packing.dims.back();
  const RowNumbers numbers(blocks, scales);
  std::atomic<bool> finite{true};
  write_lines(machine, packing, data, [&](const Piece& piece, uint8_t* codes) {
    float steps[kChunk];
    numbers.spread(piece.row, piece.begin, piece.n, steps);
    const float* from = x + piece.row * width + piece.begin;
    if (!machine.kernels.encode(from, steps, piece.n, encoder, codes)) finite = false;
    return codes;
  });
  return finite;
}

void dequantize(const Machine& machine, const Packing& packing, const Blocks& blocks,
                const uint8_t* data, const float* scales, const Table& table, float* y) {
  const size_t width = packing.dims.back();
  const bool stream = product(packing.dims, 0, packing.dims.size()) >= kStreamed;
  const RowNumbers numbers(blocks, scales);
  read_lines(machine, packing, data, 0, [&](const Piece& piece, const uint8_t* codes) {
    float steps[kChunk];
    numbers.spread(piece.row, piece.begin, piece.n, steps);
    float* to = y + piece.row * width + piece.begin;
    machine.kernels.decode(codes, steps, piece.n, table, stream, to);
  });
}

}  // namespace lucid_fx::block
