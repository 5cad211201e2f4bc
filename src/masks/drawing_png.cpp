#include "masks/drawing_png.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "base/error.h"

namespace seqfuse::masks {
namespace {

constexpr int64_t kMostPixels = 2048, kLeastPixels = 640;  // of the longer side

// Colours by number, each 2 bits of a pixel; where tokens share a pixel, the highest wins.
enum Colour : uint8_t { kWhite, kTint, kElement, kFullBlock };
constexpr std::string_view kPalette("\xff\xff\xff\xfd\xe3\xc8\xe0\x8a\x3c\x1f\x4e\x79", 12);

void append_number(std::string& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift);
}

uint32_t crc_of(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return ~crc;
}

void append_chunk(std::string& png, std::string_view type, std::string_view data) {
  append_number(png, static_cast<uint32_t>(data.size()));
  const size_t first = png.size();
  png.append(type).append(data);
  append_number(png, crc_of(std::string_view(png).substr(first)));
}

// A zlib stream that is not compressed.
std::string stored(std::string_view data) {
  constexpr size_t kMost = 65535;  // of a part
  std::string stream("\x78\x01");
  for (size_t at = 0; at < data.size() || at == 0; at += kMost) {
    const std::string_view part = data.substr(at, kMost);
    const auto size = static_cast<uint16_t>(part.size());
    stream += static_cast<char>(at + kMost >= data.size());
    for (const uint16_t number : {size, static_cast<uint16_t>(~size)}) {
      stream += static_cast<char>(number);
      stream += static_cast<char>(number >> 8);
    }
    stream.append(part);
  }
  uint32_t a = 1, b = 0;
  for (const char byte : data) {
    a = (a + static_cast<uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  append_number(stream, b << 16 | a);
  return stream;
}

// Pixels of 2 bits, rows downwards, from a picture of which a pixel shows tokens x tokens elements.
class Picture {
 public:
  Picture(int64_t queries, int64_t keys) {
    const int64_t longest = std::max<int64_t>({queries, keys, 1});
    tokens_ = (longest + kMostPixels - 1) / kMostPixels;
    pixels_ = std::max<int64_t>(kLeastPixels / longest, 1);
    width_ = std::max<int64_t>((keys + tokens_ - 1) / tokens_, 1);
    height_ = std::max<int64_t>((queries + tokens_ - 1) / tokens_, 1);
    colours_.assign(static_cast<size_t>(width_ * height_), kWhite);
  }
  // Queries [q0, q1), keys [k0, k1).
  void add(int64_t q0, int64_t q1, int64_t k0, int64_t k1, Colour colour) {
    for (int64_t y = q0 / tokens_; y <= (q1 - 1) / tokens_; ++y) {
      for (int64_t x = k0 / tokens_; x <= (k1 - 1) / tokens_; ++x) {
        uint8_t& at = colours_[static_cast<size_t>(y * width_ + x)];
        at = std::max<uint8_t>(at, colour);
      }
    }
  }
  std::string png() const {
    std::string rows, header;
    for (int64_t y = 0; y < height_ * pixels_; ++y) {
      std::string row(1 + static_cast<size_t>((width_ * pixels_ + 3) / 4), '\0');  // 0: no filter
      for (int64_t x = 0; x < width_ * pixels_; ++x) {
        const int colour = colours_[static_cast<size_t>(y / pixels_ * width_ + x / pixels_)];
        row[1 + static_cast<size_t>(x / 4)] |= static_cast<char>(colour << (6 - x % 4 * 2));
      }
      rows += row;
    }
    append_number(header, static_cast<uint32_t>(width_ * pixels_));
    append_number(header, static_cast<uint32_t>(height_ * pixels_));
    header.append("\x02\x03\0\0\0", 5);  // 2 bits a pixel, numbers of a palette
    std::string png("\x89PNG\r\n\x1a\n");
    append_chunk(png, "IHDR", header);
    append_chunk(png, "PLTE", kPalette);
    append_chunk(png, "IDAT", stored(rows));
    append_chunk(png, "IEND", "");
    return png;
  }

 private:
  int64_t tokens_, pixels_, width_, height_;  // pixels_: of an element, if elements are large
  std::vector<uint8_t> colours_;
};

}  // namespace

std::string draw_png(const BlockMask& mask, int64_t sequence) {
  const BlockMaskView view = mask.view();
  SEQFUSE_CHECK(view.step == 1, "drawing a mask in blocks of every {}th token; expected step 1",
                view.step);
  Picture picture(mask.queries, mask.keys);
  for (int64_t i = 0; i < view.query_blocks; ++i) {
    const int64_t list = sequence * view.query_blocks + i;
    const BlockTokens queries = view.queries_of(i);
    const int64_t q0 = queries.first, q1 = q0 + queries.count;
    for (int32_t e = view.row_begin[list]; e < view.row_begin[list + 1]; ++e) {
      const BlockTokens keys = view.keys_of(view.column[e]);
      const int64_t k0 = keys.first;
      const int32_t bitmap = view.bitmap[e];
      picture.add(q0, q1, k0, k0 + keys.count, bitmap < 0 ? kFullBlock : kTint);
      for (int64_t q = q0; bitmap >= 0 && q < q1; ++q) {
        uint64_t left = view.bits[int64_t{bitmap} * kBlock + q - q0];
        for (; left != 0; left &= left - 1) {
          const int64_t k = k0 + std::countr_zero(left);
          picture.add(q, q + 1, k, k + 1, kElement);
        }
      }
    }
  }
  return picture.png();
}

}  // namespace seqfuse::masks
