#ifndef OTLP_GZIP_H
#define OTLP_GZIP_H
#include <string>
#include <string_view>

enum class Unpacked { done, damaged, too_large };

/* Unpacks all members of a gzip stream, at most `most` bytes. */
Unpacked gunzip(std::string_view packed, size_t most, std::string &bytes);
void gzip(std::string_view bytes, std::string &packed);

#endif
