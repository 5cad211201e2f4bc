// The user's input: a folder, an archive (.zip, .tar.*), a compressed file (.gz, .xz, .zst, .bz2)
// or a plain file, read as a sequence of named members, each a stream of decompressed
// bytes.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace seqfuse::data {

// A stream of decompressed bytes.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills up to size bytes; returns how many, 0 at the end. Throws DataError naming the input when
  // it is truncated or damaged, IoError when the system cannot read it.
  virtual size_t read(char* out, size_t size) = 0;
};

// Wraps a stream and makes its first bytes available before they are read.
class PeekedStream final : public ByteStream {
 public:
  PeekedStream(ByteStream& stream, size_t size);
  std::string_view head() const { return head_; }  // size bytes, or fewer at the end of the stream
  size_t read(char* out, size_t size) override;

 private:
  ByteStream& stream_;
  std::string head_;
  size_t taken_ = 0;  // of the head
};

struct InputMember {
  std::string name;      // path within the folder or archive, without a .gz, .xz, ... ending
  std::string location;  // for messages: the file, or "archive.zip: ml-1m/ratings.dat"

  std::string base_name() const;  // after the last '/'
};

// A name without a .gz, .xz, ... ending.
std::string without_compression(std::string name);

// Calls visit(member, stream) for each member: of a folder (searched recursively) by name, of an
// archive in its own order. Skips names inside the input that begin with '.' or '_', as Spark and
// Arrow do. wanted(member) decides whether a member is opened at all. Returns the
// names of all members, for messages. Throws DataError or IoError: missing path, not an archive,
// truncated.
std::vector<std::string> visit_input(
    const std::filesystem::path& input, const std::function<bool(const InputMember&)>& wanted,
    const std::function<void(const InputMember&, ByteStream&)>& visit);

// Reads the rest of a stream, for small files. Throws DataError beyond limit bytes.
std::string read_all(ByteStream& stream, const std::string& name, size_t limit = size_t{1} << 31);

}  // namespace seqfuse::data
