-- Asks tollgate before a request passes through HAProxy. `haproxy.cfg` beside this file uses it.

-- Where HAProxy listens for questions of this script. The host in the address is not used.
local ASKED = "abns@tollgate"
local ADDRESS = "http://tollgate/api/v1/forward-auth/"

-- If tollgate does not answer: "refuse" with 503, or "pass".
local WITHOUT_ANSWER = "refuse"

-- How many headers a question may have. HAProxy has room for 101 including its own, and some versions
-- crash beyond that.
local MOST_HEADERS = 64

-- The statuses with which HAProxy reports that tollgate does not answer. Any other status that is not from
-- tollgate is about the question, for example that it is too long. A client can cause that, so it must not pass.
local SILENCE = { [502] = true, [503] = true, [504] = true }

-- Headers of one connection, or of a body that is not sent.
local NOT_PASSED_ON = {
    "connection", "content-length", "expect", "host", "keep-alive", "te", "trailer",
    "transfer-encoding", "upgrade",
}

-- Headers of the answer that the client gets.
local ALWAYS_SHOWN = {
    "x-ratelimit-limit", "x-ratelimit-burst", "x-ratelimit-remaining", "x-ratelimit-reset",
    "x-ratelimit-type",
}
local SHOWN_WHEN_REFUSED = {
    "cache-control", "content-type", "retry-after", "retry-after-ms", "www-authenticate",
    "x-correlation-id", "x-should-retry",
}

-- The headers of a request, with HAProxy's own values in place of the client's; nil if there are too many.
local function question(txn)
    local sent = txn.http:req_get_headers()
    local host = sent["host"] and sent["host"][0]
    for _, name in ipairs(NOT_PASSED_ON) do
        sent[name] = nil
    end
    sent["x-forwarded-method"] = { [0] = txn.f:method() }
    sent["x-forwarded-uri"] = { [0] = txn.f:pathq() }
    sent["x-forwarded-host"] = host and { [0] = host }
    sent["x-forwarded-for"] = { [0] = txn.f:src() }
    local headers, count = {}, 0
    for name, values in pairs(sent) do
        headers[name] = {}
        for index = 0, #values do
            headers[name][index + 1] = values[index]
            count = count + 1
        end
    end
    return count <= MOST_HEADERS and headers
end

local function pick(names, answer, shown)
    for _, name in ipairs(names) do
        if answer.headers[name] then
            shown[name] = answer.headers[name][0]
        end
    end
    return shown
end

local function refuse(txn, status, body, headers)
    local reply = txn:reply { status = status, body = body }
    for name, value in pairs(headers) do
        reply:add_header(name, value)
    end
    txn:done(reply)
end

core.register_action("tollgate", { "http-req" }, function(txn, policy, route)
    local headers = question(txn)
    if not headers then
        return refuse(txn, 431, "", {})
    end
    local answer = core.httpclient():get {
        url = ADDRESS .. policy .. "?route=" .. route,
        dst = ASKED,
        headers = headers,
        timeout = 3000,
    }
    if not (answer.headers and answer.headers["x-tollgate-answered"]) then
        if not SILENCE[answer.status] then
            refuse(txn, 431, "", {})
        elseif WITHOUT_ANSWER ~= "pass" then
            refuse(txn, 503, "", { ["retry-after"] = "1", ["cache-control"] = "no-store" })
        end
        return
    end
    local shown = pick(ALWAYS_SHOWN, answer, {})
    if answer.status == 200 then
        txn:set_priv(shown)
    else
        refuse(txn, answer.status, answer.body, pick(SHOWN_WHEN_REFUSED, answer, shown))
    end
end, 2)

core.register_action("tollgate_headers", { "http-res" }, function(txn)
    for name, value in pairs(txn:get_priv() or {}) do
        txn.http:res_set_header(name, value)
    end
end)
