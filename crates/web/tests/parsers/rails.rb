# Reads logins as Rack and Rails do. A line of input is one login, a line of output what they find.

require "action_dispatch"
require "json"
require "logger"
require "stringio"

# Every value of a member that a service would take for the account.
def all_of(members)
  value = members.is_a?(Hash) ? members["user"] : nil
  case value
  when nil then []
  when Array, Hash then [value.to_json]
  else [value.to_s]
  end
end

def environment(login)
  body = [login["body"]].pack("H*")
  {
    "REQUEST_METHOD" => "POST", "SCRIPT_NAME" => "", "PATH_INFO" => "/login",
    "QUERY_STRING" => login["query"], "SERVER_NAME" => "shop", "SERVER_PORT" => "80", "HTTP_HOST" => "shop",
    "CONTENT_TYPE" => login["type"], "CONTENT_LENGTH" => body.bytesize.to_s,
    "rack.url_scheme" => "http", "rack.input" => StringIO.new(body), "rack.errors" => StringIO.new,
    "action_dispatch.logger" => Logger.new(nil)
  }
end

def rack(login)
  request = Rack::Request.new(environment(login))
  return all_of(request.GET) + all_of(JSON.parse(request.body.read)) if login["type"].include?("json")

  all_of(request.GET) + all_of(request.POST)
end

def rails(login)
  request = ActionDispatch::Request.new(environment(login))
  all_of(request.query_parameters) + all_of(request.request_parameters)
end

STDIN.each_line do |line|
  login = JSON.parse(line)
  found = { "Rack" => :rack, "Rails" => :rails }.transform_values do |read|
    method(read).call(login).map { |value| value.dup.force_encoding("UTF-8").scrub }
  rescue StandardError # A parser that refuses a login finds no account in it.
    []
  end
  puts JSON.generate(found)
end
