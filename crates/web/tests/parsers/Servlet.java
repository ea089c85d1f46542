// Reads logins as Tomcat and Jackson do. A line of input is one login, a line of output what they find.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.logging.LogManager;
import org.apache.tomcat.util.buf.MessageBytes;
import org.apache.tomcat.util.http.Parameters;

public class Servlet {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        LogManager.getLogManager().reset();
        var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line; (line = input.readLine()) != null; ) {
            JsonNode login = JSON.readTree(line);
            List<String> found;
            try {
                found = read(login);
            } catch (Exception refused) { // A parser that refuses a login finds no account in it.
                found = List.of();
            }
            output.println(JSON.writeValueAsString(Map.of("Tomcat", found)));
        }
        output.flush();
    }

    /** What `getParameterValues` returns; JSON is read by the service itself. */
    private static List<String> read(JsonNode login) throws Exception {
        var body = HexFormat.of().parseHex(login.get("body").asText());
        var parameters = new Parameters();
        parameters.setCharset(StandardCharsets.UTF_8);
        parameters.setQueryStringCharset(StandardCharsets.UTF_8);
        parameters.setLimit(1000);
        var query = MessageBytes.newInstance();
        var bytes = login.get("query").asText().getBytes(StandardCharsets.ISO_8859_1);
        query.setBytes(bytes, 0, bytes.length);
        parameters.setQuery(query);
        parameters.handleQueryParameters();
        var found = new ArrayList<String>();
        if (login.get("type").asText().contains("json")) {
            JsonNode member = JSON.readTree(body).get("user");
            if (member != null) {
                found.add(member.isContainerNode() ? member.toString() : member.asText());
            }
        } else {
            parameters.processParameters(body, 0, body.length);
        }
        for (var name : List.of("user", "user[]")) {
            var values = parameters.getParameterValues(name);
            if (values != null) {
                found.addAll(List.of(values));
            }
        }
        return found;
    }
}
